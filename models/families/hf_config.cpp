// SPDX-License-Identifier: Apache-2.0
// config.json: which family, which part of it is the text model, and the layers that follow.
#include "models/families/hf_config.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "models/families/families.hpp"
#include "models/layers/layers.hpp"

namespace shardsim {
namespace {

std::vector<const Family*> all_families() {
  std::vector<const Family*> all;
  for (const auto& group : {llama_families(), moe_families(), gpt_families(), encoder_families()})
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

struct TextModel {
  const ConfigNode* config = nullptr;
  bool part = false;  ///< of a multimodal model
};

TextModel text_model(const ConfigNode& config) {
  for (const std::string_view key : {"text_config", "llm_config", "language_config"}) {
    const ConfigNode* part = config.find(key);
    if (part != nullptr && part->kind == ConfigNode::Kind::map) return {part, true};
  }
  return {&config, config.find("vision_config") != nullptr || config.find("audio_config") != nullptr};
}

std::int32_t add_spec(Architecture& a, LayerSpec spec) {
  a.specs.push_back(std::move(spec));
  return static_cast<std::int32_t>(a.specs.size() - 1);
}

/// Blocks that differ in window or in having experts are types of their own.
void add_blocks(Architecture& a, const Transformer& t) {
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
      variants.push_back({window, dense, add_spec(a, {std::move(name), true, block, t.block_registration})});
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
  a.registration = std::move(t.registration);
  if (t.vision) {
    a.fixed_sequence = t.patches.patches() + 1;
    a.instances.push_back({std::string(t.patches.prefix), add_spec(a, {family + " embedding", false, t.patches, {}}), false});
  } else {
    a.instances.push_back({std::string(t.embedding.tokens), add_spec(a, {family + " embedding", false, t.embedding, {}}), false});
  }
  add_blocks(a, t);
  a.instances.push_back({std::string(t.head.name), add_spec(a, {family + " head", false, t.head, {}}), false});
  a.instances.push_back({"loss", add_spec(a, {"loss", false, t.loss, {}}), false});
  return a;
}

void check_size(const Transformer& t, const ConfigNode& config, Problems& problems) {
  const auto* moe = std::get_if<MoeSpec>(&t.block.mlp);
  const std::int64_t experts = moe != nullptr ? moe->experts : 0;
  const double h = static_cast<double>(t.block.hidden), layers = static_cast<double>(t.layers);
  const AttentionSpec& a = t.block.attention;
  double block = h * static_cast<double>(2 * a.heads + 2 * a.kv_heads) * static_cast<double>(a.head_dim + a.value_dim) +
                 3 * h * static_cast<double>(t.dense.width);
  if (moe != nullptr)
    block += 3 * h * (static_cast<double>(experts) * static_cast<double>(moe->width) + static_cast<double>(moe->shared_width));
  const double total = layers * block + 2 * h * static_cast<double>(std::max(t.embedding.vocabulary, t.head.outputs));
  if (total > max_elements) problems.add(config.where, "the model would have more than 10^16 parameters");
  if (t.layers * (3 * experts + 20) > max_tensors)
    problems.add(config.where, "the model would have more than " + std::to_string(max_tensors) + " tensors");
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

Result<std::shared_ptr<const Architecture>> read_hf_config(const ConfigNode& config) {
  Problems problems;
  if (config.kind != ConfigNode::Kind::map) {
    problems.add(config.where, "a config.json must hold a map of keys");
    return tl::unexpected(std::move(problems));
  }
  const TextModel text = text_model(config);
  const ConfigNode* type_node = text.config->find("model_type");
  const std::string type = word(*text.config, "model_type");
  if (type.empty()) {
    problems.add(type_node != nullptr ? type_node->where : text.config->where, "the config does not say its model_type", {supported()});
    return tl::unexpected(std::move(problems));
  }
  const Family* family = find_family(type);
  if (family == nullptr) {
    problems.add(type_node->where, "model family '" + type + "' is not supported", {supported()});
    return tl::unexpected(std::move(problems));
  }
  ConfigReader reader(*text.config, problems);
  Transformer transformer = family->describe(reader);
  if (problems.empty()) check_size(transformer, *text.config, problems);
  if (!problems.empty()) return tl::unexpected(std::move(problems));

  Architecture architecture = architecture_of(std::move(transformer), std::string(family->name));
  architecture.name = model_name(config, architecture.family);
  if (text.part)
    architecture.warnings.push_back("only the text model of '" + architecture.name + "' is counted; its other parts are left out");
  architecture.tables = tabulate(architecture, nullptr);
  return std::make_shared<const Architecture>(std::move(architecture));
}

}  // namespace shardsim
