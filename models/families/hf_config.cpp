// SPDX-License-Identifier: Apache-2.0
// config.json: which family, which part of it is the text model, and the layers that follow.
#include <algorithm>
#include <array>
#include <utility>

#include "models/families/architectures.hpp"
#include "models/families/families.hpp"
#include "models/layers/layers.hpp"

namespace shardsim {
namespace {

std::vector<const Family*> all_families() {
  std::vector<const Family*> all;
  for (const auto& group : {llama_families(), dense_families(), moe_families(), expert_families(), hybrid_families(), gpt_families(),
                            encoder_families(), encoder_decoder_families(), vision_families()})
    for (const Family& family : group) all.push_back(&family);
  return all;
}

const Family* find_family(std::string_view model_type) {
  for (const Family* family : all_families()) {
    if (family->name == model_type) return family;
    if (std::find(family->model_types.begin(), family->model_types.end(), model_type) != family->model_types.end()) return family;
  }
  return nullptr;
}

std::string supported() {
  std::string list = "supported families:";
  for (const std::string& name : family_names()) list += (list.back() == ':' ? " " : ", ") + name;
  return list;
}

/// Text of a key without complaint; empty if it is not there.
std::string word(const ConfigNode& map, std::string_view key) {
  const ConfigNode* node = map.find(key);
  return node != nullptr && node->kind == ConfigNode::Kind::scalar ? node->text : std::string();
}

/// The text model of a multimodal config, with the keys that decide about it and stand beside it.
struct TextModel {
  ConfigNode config;
  bool part = false;
};

void inherit(ConfigNode& text, const ConfigNode& whole, std::string_view key) {
  const ConfigNode* value = whole.find(key);
  if (value != nullptr && text.find(key) == nullptr) text.entries.push_back({std::string(key), value->where, *value});
}

TextModel text_model(const ConfigNode& config, const Family* whole) {
  for (const std::string_view key : {"text_config", "llm_config", "language_config"}) {
    const ConfigNode* part = config.find(key);
    if (whole != nullptr || part == nullptr || part->kind != ConfigNode::Kind::map) continue;
    TextModel text{*part, true};
    // Saved by transformers 4.53 and later, only the whole model says whether its head is the token table.
    for (const std::string_view beside : {"tie_word_embeddings", "architectures", "quantization_config"})
      inherit(text.config, config, beside);
    if (text.config.find("model_type") == nullptr) inherit(text.config, config, "model_type");
    return text;
  }
  return {config, config.find("vision_config") != nullptr || config.find("audio_config") != nullptr};
}

std::int32_t add_spec(Architecture& a, LayerSpec spec) {
  a.specs.push_back(std::move(spec));
  return static_cast<std::int32_t>(a.specs.size() - 1);
}

/// Blocks that differ in window or in having experts are types of their own.
void add_kinds(Architecture& a, const Transformer& t) {
  std::vector<std::int32_t> specs(t.variants.size(), -1);
  for (std::size_t i = 0; i < t.kinds.size(); ++i) {
    std::int32_t& spec = specs[t.kinds[i]];
    if (spec < 0) {
      std::string name = a.family + " block";
      if (t.variants.size() > 1) name += " of kind " + std::to_string(t.kinds[i] + 1);
      spec = add_spec(a, {std::move(name), true, t.variants[t.kinds[i]], t.block_registration, t.block_sequence});
    }
    a.instances.push_back({std::string(t.blocks) + '.' + std::to_string(i), spec, true});
  }
}

void add_part(Architecture& a, const Part& part) {
  const std::int32_t spec = add_spec(a, part.spec);
  if (part.repeat == 0) return a.instances.push_back({part.name, spec, part.prefixed});
  for (std::int64_t i = 0; i < part.repeat; ++i) a.instances.push_back({part.name + '.' + std::to_string(part.first + i), spec, true});
}

void add_blocks(Architecture& a, const Transformer& t) {
  if (!t.kinds.empty()) return add_kinds(a, t);
  struct Variant {
    std::int64_t window;
    bool dense;
    std::int32_t spec;
  };
  std::vector<Variant> variants;
  for (std::int64_t i = 0; i < t.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t window = t.windows.empty() ? t.block.attention.window : t.windows[at];
    const bool dense = !t.dense_layers.empty() && t.dense_layers[at];
    auto found = std::find_if(variants.begin(), variants.end(), [&](const Variant& v) { return v.window == window && v.dense == dense; });
    if (found == variants.end()) {
      BlockSpec block = t.block;
      block.attention.window = window;
      if (dense) block.mlp = t.dense;
      std::string name = a.family + " block";
      if (!t.dense_layers.empty()) name += dense ? " without experts" : " with experts";
      if (!t.windows.empty()) name += window > 0 ? " with window" : " with full attention";
      variants.push_back({window, dense, add_spec(a, {std::move(name), true, block, t.block_registration, t.block_sequence})});
      found = variants.end() - 1;
    }
    a.instances.push_back({std::string(t.blocks) + '.' + std::to_string(i), found->spec, true});
  }
}

/// A bound on what a token needs in any tensor but the attention scores.
double widest(const Transformer& t) {
  const AttentionSpec& a = t.block.attention;
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  double rows = 1, width = real(t.dense.width);
  if (const auto* moe = std::get_if<MoeSpec>(&t.block.mlp)) {
    rows = real(moe->top_k + moe->experts);
    width = std::max({width, real(moe->width), real(moe->shared_width)});
  }
  return std::max({real(t.embedding.vocabulary), real(t.head.outputs), 2 * rows * std::max(real(t.block.hidden), width),
                   3 * real(a.heads) * real(a.head_dim + a.value_dim),
                   real(t.patches.channels) * real(t.patches.patch) * real(t.patches.patch)});
}

Architecture architecture_of(Transformer t, const std::string& family) {
  Architecture a;
  a.family = family;
  a.warnings = std::move(t.warnings);
  a.learned_positions = t.learned_positions;
  a.widest = widest(t);
  a.heads = t.block.attention.heads;
  a.dense_scores = t.block.attention.bias_rows > 0 ||
                   std::any_of(t.variants.begin(), t.variants.end(), [](const BlockSpec& b) { return b.attention.bias_rows > 0; });
  a.registration = std::move(t.registration);
  for (const Part& part : t.before) {
    add_part(a, part);
    if (const auto* block = std::get_if<BlockSpec>(&part.spec.what)) a.heads = std::max(a.heads, block->attention.heads * part.spec.pieces);
    a.widest = std::max(a.widest, t.before_widest);
  }
  if (t.vision) {
    a.fixed_sequence = t.patches.tokens();
    a.instances.push_back({std::string(t.patches.prefix), add_spec(a, {family + " embedding", false, t.patches, {}}), false});
  } else if (!t.no_embedding) {
    t.embedding.input = t.features;
    a.instances.push_back(
        {std::string(t.embedding.tokens), add_spec(a, {family + " embedding", false, t.embedding, {}, t.block_sequence}), false});
  }
  if (t.fixed_sequence > 0) a.fixed_sequence = t.fixed_sequence;
  if (t.layers > 0) add_blocks(a, t);
  a.instances.push_back({std::string(t.head.name), add_spec(a, {family + " head", false, t.head, {}, t.block_sequence}), false});
  for (const Part& part : t.after) add_part(a, part);
  a.instances.push_back({"loss", add_spec(a, {"loss", false, t.loss, {}, t.block_sequence}), false});
  return a;
}

void check_size(const Transformer& t, const ConfigNode& config, Problems& problems) {
  const std::vector<BlockSpec> blocks = t.kinds.empty() ? std::vector{t.block} : t.variants;
  const double h = static_cast<double>(t.block.hidden), layers = static_cast<double>(t.layers);
  std::int64_t experts = 0;
  double largest = 0;
  for (const BlockSpec& of : blocks) {
    const auto* moe = std::get_if<MoeSpec>(&of.mlp);
    const AttentionSpec& a = of.attention;
    double block = h * static_cast<double>(2 * a.heads + 2 * a.kv_heads) * static_cast<double>(a.head_dim + a.value_dim) +
                   3 * h * static_cast<double>(t.dense.width);
    if (moe != nullptr)
      block += 3 * h * (static_cast<double>(moe->experts) * static_cast<double>(moe->width) + static_cast<double>(moe->shared_width));
    if (moe != nullptr) experts = std::max(experts, moe->experts);
    largest = std::max(largest, block);
  }
  const double total = layers * largest + 2 * h * static_cast<double>(std::max(t.embedding.vocabulary, t.head.outputs));
  if (total > max_elements) problems.add(config.where, "the model would have more than 10^16 parameters");
  if (t.layers * (3 * experts + 20) > max_tensors)
    problems.add(config.where, "the model would have more than " + std::to_string(max_tensors) + " tensors");
}

/// Bits and scales of a stored weight, by the method that quantised it.
std::optional<Quantization> read_quantization(const ConfigNode& config, Problems& problems) {
  const ConfigNode* node = config.find("quantization_config");
  if (node == nullptr || node->kind != ConfigNode::Kind::map) return std::nullopt;
  const std::string method = word(*node, "quant_method").empty() ? "bitsandbytes" : word(*node, "quant_method");
  const auto number = [&](std::string_view key, double fallback) {
    const ConfigNode* value = node->find(key);
    return value == nullptr || value->kind == ConfigNode::Kind::null ? fallback
                                                                     : as_number(*value, problems, -1, 1 << 20).value_or(fallback);
  };
  if (method == "bitsandbytes") {
    if (word(*node, "load_in_8bit") == "true") return Quantization{"bitsandbytes 8-bit", 1, false, {}};
    // A block of 64 weights has a scale of 4 bytes; quantised twice, one of 1 byte and 4 bytes for 256 of them.
    const bool twice = word(*node, "bnb_4bit_use_double_quant") == "true";
    return Quantization{"bitsandbytes 4-bit", 0.5 + (twice ? (1.0 + 4.0 / 256) / 64 : 4.0 / 64), false, {}};
  }
  if (method == "gptq" || method == "awq" || method == "auto-round" || method == "hqq" || method == "aqlm" || method == "quanto") {
    const double bits = number("bits", number("w_bit", 4)), group = number("group_size", number("q_group_size", 128));
    return Quantization{
        method + " " + std::to_string(static_cast<int>(bits)) + "-bit", bits / 8 + (group > 0 ? (2 + bits / 8) / group : 0), false, {}};
  }
  if (method == "mxfp4") return Quantization{"mxfp4", 0.5 + 1.0 / 32, true, {}};
  if (method == "fp8" || method == "fbgemm_fp8" || method == "compressed-tensors" || method == "modelopt")
    return Quantization{method, 1 + 4.0 / (128 * 128), true, {}};
  problems.add(node->where, "quantization_config: the method '" + method + "' is not known",
               {"known: bitsandbytes, gptq, awq, fp8, mxfp4, compressed-tensors"});
  return std::nullopt;
}

std::string list_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& w : words) text += (text.empty() ? "" : ", ") + w;
  return text;
}

std::string model_name(const ConfigNode& config, const std::string& family) {
  std::string name = word(config, "_name_or_path");
  if (!name.empty()) return name;
  const ConfigNode* source = &config;
  if (source->where.source == nullptr) return family;
  name = source->where.source->name;
  name.erase(0, name.find_last_of('/') + 1);  // npos + 1 is 0
  if (const auto dot = name.rfind('.'); dot != std::string::npos && dot > 0) name.erase(dot);
  return name.empty() ? family : name;
}

}  // namespace

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family* family : all_families()) names.emplace_back(family->name);
  return names;
}

std::int64_t hidden_size(const Architecture& architecture) {
  for (auto spec = architecture.specs.rbegin(); spec != architecture.specs.rend(); ++spec)
    if (const auto* block = std::get_if<BlockSpec>(&spec->what)) return block->hidden;
  return 0;
}

std::int64_t longest_sequence(const Architecture& architecture) {
  return architecture.fixed_sequence > 0 ? architecture.fixed_sequence : architecture.learned_positions;
}

Result<std::shared_ptr<const Architecture>> read_hf_config(const ConfigNode& config) {
  Problems problems;
  if (config.kind != ConfigNode::Kind::map) {
    problems.add(config.where, "a config.json must hold a map of keys");
    return tl::unexpected(std::move(problems));
  }
  // CLIP and its like are both towers; other multimodal models are their text model with a tower in front.
  const Family* whole = find_family(word(config, "model_type"));
  if (whole != nullptr && !whole->several_towers) whole = nullptr;
  const TextModel text = text_model(config, whole);
  const ConfigNode* type_node = text.config.find("model_type");
  const std::string type = word(text.config, "model_type");
  if (type.empty()) {
    problems.add(type_node != nullptr ? type_node->where : text.config.where, "the config does not say its model_type", {supported()});
    return tl::unexpected(std::move(problems));
  }
  const Family* family = find_family(type);
  if (family == nullptr) {
    problems.add(type_node->where, "model family '" + type + "' is not supported", {supported()});
    return tl::unexpected(std::move(problems));
  }
  const auto defaults = read_json({"defaults of " + std::string(family->name), std::string(family->defaults)});
  ConfigReader reader(text.config, problems, defaults ? &*defaults : nullptr);
  Transformer transformer = family->describe(reader);
  if (!transformer.head_is_set) set_decoder_head(reader, transformer);
  const bool tower = problems.empty() && text.part && whole == nullptr && add_vision_tower(config, transformer, problems);
  if (problems.empty()) check_size(transformer, text.config, problems);
  const auto quantization = read_quantization(text.config, problems);
  if (!problems.empty()) return tl::unexpected(std::move(problems));

  if (!reader.defaulted().empty())
    transformer.warnings.push_back("config.json leaves to the defaults of its family: " + list_of(reader.defaulted()));
  if (const auto unread = reader.unread(); !unread.empty())
    transformer.warnings.push_back("keys of config.json that are not known (if one changes the layers, the count is off): " +
                                   list_of(unread));
  Architecture architecture = architecture_of(std::move(transformer), std::string(family->name));
  architecture.quantization = quantization;
  architecture.name = model_name(config, architecture.family);
  if (text.part && !tower && whole == nullptr)
    architecture.warnings.push_back("only the text model of '" + architecture.name + "' is counted; its other parts are left out");
  architecture.tables = tabulate(architecture, nullptr);
  return std::make_shared<const Architecture>(std::move(architecture));
}

}  // namespace shardsim
