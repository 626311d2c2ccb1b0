// SPDX-License-Identifier: Apache-2.0
// Vision: CLIP and SigLIP (alone, with their text tower, or in front of a language model), the towers of Qwen-VL and Llama 4, Swin,
// ConvNeXt.
#include <algorithm>
#include <array>

#include "models/families/families.hpp"

namespace shardsim {
namespace {

using Kind = InlineModule::Kind;
constexpr std::int64_t image_limit = 1 << 16, most_layers = 1 << 12, most_heads = 1 << 14, tower_width = 1 << 22;

/// A tower: patches, blocks, a norm, and what turns its tokens into those of a language model.
struct Tower {
  PatchSpec patches;
  BlockSpec block;
  std::int64_t depth = 0, tokens = 0;
  std::string patch_name, blocks, norm_name;
  NormKind norm = NormKind::layer;
  std::vector<Part> after;  ///< projector or merger
  std::int64_t features = 0;
};

BlockSpec plain_block(std::int64_t hidden, std::int64_t heads, std::int64_t width, Activation activation) {
  BlockSpec block;
  block.hidden = hidden;
  AttentionSpec& a = block.attention;
  a.heads = a.kv_heads = heads;
  a.head_dim = a.value_dim = std::max<std::int64_t>(1, hidden / heads);
  a.qkv_bias = a.out_bias = true;
  a.rotary = a.causal = a.softmax_in_fp32 = false;
  block.norm = NormKind::layer;
  block.mlp = MlpSpec{.width = width, .gated = false, .bias = true, .activation = activation};
  BlockNames& n = block.names;
  n.out = "self_attn.out_proj", n.attention_norm = "layer_norm1", n.mlp_norm = "layer_norm2", n.up = "mlp.fc1", n.down = "mlp.fc2";
  return block;
}

/// CLIP's text tower is causal, its layers those of its vision tower.
BlockSpec clip_block(ConfigReader& config, std::int64_t hidden, std::int64_t fallback_heads) {
  std::vector<std::string> warnings;
  const std::int64_t heads = config.size_or({"num_attention_heads"}, fallback_heads, most_heads);
  static_cast<void>(config.text({"hidden_act"}, "quick_gelu"));
  return plain_block(hidden, heads, config.size_or({"intermediate_size"}, 4 * hidden, tower_width), Activation::gelu);
}

InlineModule matrix(std::string name, std::int64_t in, std::int64_t out, bool bias) {
  return {.kind = Kind::linear, .name = std::move(name), .in = in, .out = out, .bias = bias};
}
InlineModule layer_norm(std::string name, std::int64_t size, bool bias = true) {
  return {.kind = Kind::norm, .name = std::move(name), .out = size, .bias = bias};
}
InlineModule gelu(std::string name) { return {.kind = Kind::activation, .name = std::move(name)}; }

/// Attention pooling of SigLIP's vision tower: a probe attends to all tokens.
Part siglip_pooling(std::string prefix, std::int64_t hidden, std::int64_t width, std::int64_t tokens) {
  InlineSpec head{.input = tokens * hidden};
  head.modules.push_back({.kind = Kind::shapes, .name = "probe", .shapes = {{"probe", {1, 1, hidden}}}, .multiplies = false});
  head.modules.push_back(matrix("attention.in_proj", hidden, 3 * hidden, true));
  head.modules.push_back(matrix("attention.out_proj", hidden, hidden, true));
  head.modules.push_back(layer_norm("layernorm", hidden));
  head.modules.push_back(matrix("mlp.fc1", hidden, width, true));
  head.modules.push_back(gelu("mlp.act"));
  head.modules.push_back(matrix("mlp.fc2", width, hidden, true));
  return {std::move(prefix), {"pooling head", false, head, {}, 1}, 0, true};
}

/// The vision part of CLIP or SigLIP below `prefix`.
Tower clip_tower(ConfigReader& config, bool siglip, const char* prefix) {
  Tower t;
  PatchSpec& p = t.patches;
  p.hidden = config.size_or({"hidden_size"}, 768);
  p.channels = config.size_or({"num_channels"}, 3, 1 << 12);
  p.image = config.size_or({"image_size"}, 224, image_limit);
  p.patch = config.size_or({"patch_size"}, siglip ? 16 : 32, image_limit);
  if (p.image < p.patch) config.problem("patch_size", "a patch of " + std::to_string(p.patch) + " pixels is larger than the image");
  p.bias = siglip, p.class_token = !siglip, p.flat_positions = true;
  p.class_name = "class_embedding", p.position_name = "position_embedding.weight", p.projection = "patch_embedding";
  if (!siglip) p.norm = NormKind::layer, p.norm_name = "pre_layrnorm";
  p.prefix = "vision_model.embeddings";
  t.tokens = p.tokens();
  t.depth = config.size_or({"num_hidden_layers"}, 12, most_layers);
  t.block = clip_block(config, p.hidden, 12);
  t.patch_name = std::string(prefix) + "embeddings", t.blocks = std::string(prefix) + "encoder.layers";
  t.norm_name = std::string(prefix) + "post_layernorm";
  t.features = t.tokens * p.hidden;
  static_cast<void>(config.size_or({"projection_dim"}, 512));
  return t;
}

void put(Transformer& into, const Tower& tower, const std::string& family) {
  into.before.push_back({tower.patch_name, {family + " patches", false, tower.patches, {}, tower.tokens}, 0, false});
  if (tower.depth > 0)
    into.before.push_back({tower.blocks, {family + " vision block", true, tower.block, {}, tower.tokens}, tower.depth, true});
  if (tower.norm != NormKind::none) {
    InlineSpec norm{.input = tower.patches.hidden};
    norm.modules.push_back({.kind = Kind::norm, .name = "", .out = tower.patches.hidden, .bias = true});
    into.before.push_back({tower.norm_name, {family + " vision norm", false, norm, {}, tower.tokens}, 0, true});
  }
  for (const Part& part : tower.after) into.before.push_back(part);
  into.features = tower.features;
  const auto& mlp = std::get<MlpSpec>(tower.block.mlp);
  into.before_widest =
      std::max(into.before_widest, static_cast<double>(tower.tokens) *
                                       static_cast<double>(std::max({4 * tower.patches.hidden, 2 * mlp.width,
                                                                     tower.patches.channels * tower.patches.patch * tower.patches.patch})));
}

/// Linear layers between a tower and a language model.
Part projector(std::string name, std::int64_t tokens, std::int64_t input, std::vector<InlineModule> modules) {
  return {std::move(name), {"projector", false, InlineSpec{.input = input, .modules = std::move(modules)}, {}, tokens}, 0, true};
}

/// LLaVA, Gemma 3 and others with a CLIP or SigLIP tower.
bool clip_in_front(const ConfigNode& whole, const std::string& type, ConfigReader& vision, bool siglip, Transformer& text) {
  Tower t = clip_tower(vision, siglip, "vision_tower.");
  const std::int64_t width = std::get<MlpSpec>(t.block.mlp).width, own = t.patches.hidden, hidden = text.block.hidden;
  if (siglip && (vision.node().find("vision_use_head") == nullptr || vision.node().find("vision_use_head")->text != "false"))
    t.after.push_back(siglip_pooling("vision_tower.head", own, width, t.tokens));
  std::int64_t tokens = t.patches.patches();
  if (type == "llava" || type == "vipllava" || type == "llava_next") {
    t.after.push_back(projector("multi_modal_projector", tokens, own,
                                {matrix("linear_1", own, hidden, true), gelu("act"), matrix("linear_2", hidden, hidden, true)}));
    if (type != "llava") return false;
  } else if (type == "gemma3") {
    const ConfigNode* each = whole.find("mm_tokens_per_image");
    Problems none;
    if (each != nullptr) tokens = as_integer(*each, none, 1, 1 << 16).value_or(256);
    if (each == nullptr) tokens = 256;
    t.after.push_back(projector("multi_modal_projector", tokens, own,
                                {{.kind = Kind::shapes, .name = "mm_soft_emb_norm", .shapes = {{"weight", {own}}}, .multiplies = false},
                                 matrix("mm_input_projection", own, hidden, false)}));
  } else {
    return false;
  }
  t.features = tokens * hidden;
  put(text, t, type);
  text.warnings.push_back("the vision tower is counted with one image of " + std::to_string(t.patches.patches()) + " patches a sequence");
  return true;
}

/// Merges 2 x 2 patches: a norm, then two linear layers.
Part qwen_merger(const std::string& name, std::int64_t tokens, std::int64_t hidden, std::int64_t merged, std::int64_t out,
                 std::int64_t normed, bool bias, bool third) {
  std::vector<InlineModule> m;
  m.push_back(layer_norm(third ? "norm" : "ln_q", normed, bias));
  m.push_back(matrix(third ? "linear_fc1" : "mlp.0", merged, merged, true));
  m.push_back(gelu("act_fn"));
  m.push_back(matrix(third ? "linear_fc2" : "mlp.2", merged, out, true));
  Part part = projector(name, tokens, merged, std::move(m));
  static_cast<void>(hidden);
  return part;
}

/// One image of 448 x 448 pixels: Qwen's towers take any size.
bool qwen_in_front(const std::string& type, ConfigReader& v, Transformer& text) {
  const bool second = type.starts_with("qwen2_vl"), third = type.starts_with("qwen3_vl");
  Tower t;
  PatchSpec& p = t.patches;
  const std::int64_t text_hidden = text.block.hidden;
  p.hidden = second ? v.size_or({"embed_dim"}, 1280) : v.size_or({"hidden_size"}, third ? 1152 : 1280);
  p.channels = v.size_or({"in_channels", "in_chans"}, 3, 1 << 12);
  p.patch = v.size_or({"patch_size", "spatial_patch_size"}, third ? 16 : 14, image_limit);
  p.temporal = v.size_or({"temporal_patch_size"}, 2, 64);
  p.image = 32 * p.patch;
  p.bias = third, p.class_token = false, p.flat_positions = true,
  p.positions = third ? v.size_or({"num_position_embeddings"}, 2304, 1 << 20) : 0;
  p.prefix = "visual", p.projection = "patch_embed.proj", p.position_name = "pos_embed.weight";
  const std::int64_t heads = v.size_or({"num_heads"}, 16, most_heads), merge = v.size_or({"spatial_merge_size"}, 2, 64);
  const std::int64_t width =
      second ? v.size_or({"mlp_ratio"}, 4, 1 << 10) * p.hidden : v.size_or({"intermediate_size"}, third ? 4304 : 3420, tower_width);
  t.block = plain_block(p.hidden, heads, width, Activation::gelu);
  BlockNames& n = t.block.names;
  n.attention = "attn", n.qkv = "attn.qkv", n.out = "attn.proj", n.attention_norm = "norm1", n.mlp_norm = "norm2";
  t.block.attention.projection = AttentionSpec::Projection::fused;
  t.block.attention.rotary = true;
  if (third) n.up = "mlp.linear_fc1", n.down = "mlp.linear_fc2";
  if (!second && !third) {
    t.block.norm = NormKind::rms;
    t.block.mlp = MlpSpec{.width = width, .gated = true, .bias = true, .activation = Activation::silu};
    n.gate = "mlp.gate_proj", n.up = "mlp.up_proj", n.down = "mlp.down_proj";
  }
  t.depth = v.size_or({"depth"}, third ? 27 : 32, most_layers);
  t.tokens = p.tokens();
  t.norm = NormKind::none;
  t.patch_name = "visual.patch_embed", t.blocks = "visual.blocks";
  const std::int64_t merged = p.hidden * merge * merge, tokens = t.tokens / (merge * merge),
                     out = second ? v.size_or({"hidden_size"}, text_hidden) : v.size_or({"out_hidden_size"}, text_hidden);
  t.after.push_back(qwen_merger("visual.merger", tokens, p.hidden, merged, out, p.hidden, second || third, third));
  if (third) {
    const std::int64_t stacks = v.node().find("deepstack_visual_indexes") != nullptr ? v.entries("deepstack_visual_indexes") : 3;
    for (std::int64_t i = 0; i < stacks; ++i)
      t.after.push_back(
          qwen_merger("visual.deepstack_merger_list." + std::to_string(i), tokens, p.hidden, merged, out, merged, true, true));
  }
  t.features = tokens * text_hidden;
  put(text, t, "qwen");
  text.warnings.push_back("the vision tower is counted with one image of " + std::to_string(t.tokens) + " patches a sequence");
  return true;
}

bool llama4_in_front(ConfigReader& v, Transformer& text) {
  Tower t;
  PatchSpec& p = t.patches;
  p.hidden = v.size_or({"hidden_size"}, 768);
  p.channels = v.size_or({"num_channels"}, 3, 1 << 12);
  p.image = v.size_or({"image_size"}, 448, image_limit), p.patch = v.size_or({"patch_size"}, 14, image_limit);
  if (p.image < p.patch) v.problem("patch_size", "a patch of " + std::to_string(p.patch) + " pixels is larger than the image");
  p.bias = false, p.flat_positions = true;
  p.prefix = "vision_model", p.class_name = "class_embedding", p.position_name = "positional_embedding_vlm",
  p.projection = "patch_embedding.linear";
  p.norm = NormKind::layer, p.norm_name = "vision_model.layernorm_pre";
  t.tokens = p.tokens();
  t.depth = v.size_or({"num_hidden_layers"}, 34, most_layers);
  t.block = plain_block(p.hidden, v.size_or({"num_attention_heads"}, 16, most_heads), v.size_or({"intermediate_size"}, 5632, tower_width),
                        Activation::gelu);
  t.block.attention.rotary = true;
  BlockNames& n = t.block.names;
  n.out = "self_attn.o_proj", n.attention_norm = "input_layernorm", n.mlp_norm = "post_attention_layernorm";
  t.patch_name = "vision_model.embedding", t.blocks = "vision_model.model.layers", t.norm_name = "vision_model.layernorm_post";
  const double ratio = v.real("pixel_shuffle_ratio", 0.5);
  const auto fold = ratio > 0 ? static_cast<std::int64_t>(1 / (ratio * ratio) + 0.5) : 4;
  const std::int64_t in = v.size_or({"projector_input_dim"}, 4096), out = v.size_or({"projector_output_dim"}, 4096),
                     merged = std::get<MlpSpec>(t.block.mlp).width, tokens = std::max<std::int64_t>(1, p.patches() / fold);
  t.after.push_back(projector("vision_model.vision_adapter", tokens, merged,
                              {matrix("mlp.fc1", merged, in, false), gelu("mlp.act"), matrix("mlp.fc2", in, out, false)}));
  t.after.push_back(projector("multi_modal_projector", tokens, out,
                              {matrix("linear_1", v.size_or({"vision_output_dim"}, 4096), text.block.hidden, false)}));
  t.features = tokens * text.block.hidden;
  put(text, t, "llama4");
  text.warnings.push_back("the vision tower is counted with one image of " + std::to_string(t.tokens) + " tokens a sequence");
  return true;
}

/// Both towers of CLIP or SigLIP, trained on pairs: the vision tower, then the text tower with the loss over the pairs.
Transformer two_towers(ConfigReader& config, bool siglip) {
  static const ConfigNode nothing = [] {
    ConfigNode node;
    node.kind = ConfigNode::Kind::map;
    return node;
  }();
  const ConfigNode *vision_node = config.section("vision_config"), *text_node = config.section("text_config");
  ConfigReader vision(vision_node != nullptr ? *vision_node : nothing, config.problems()),
      text(text_node != nullptr ? *text_node : nothing, config.problems());
  Transformer t;
  Tower tower = clip_tower(vision, siglip, "vision_model.");
  const std::int64_t own = tower.patches.hidden, hidden = text.size_or({"hidden_size"}, siglip ? 768 : 512),
                     projection = config.size_or({"projection_dim"}, 512);
  if (siglip) {
    tower.after.push_back(siglip_pooling("vision_model.head", own, std::get<MlpSpec>(tower.block.mlp).width, tower.tokens));
    tower.features = own;
  } else {
    tower.after.push_back(projector("visual_projection", 1, own, {matrix("", own, projection, false)}));
    tower.features = projection;
  }
  put(t, tower, siglip ? "siglip" : "clip");
  InlineSpec scale;
  scale.modules.push_back({.kind = Kind::shapes, .name = "", .shapes = {{"logit_scale", {1}}}, .multiplies = false});
  if (siglip) scale.modules.back().shapes.push_back({"logit_bias", {1}});
  t.before.push_back({"logits", {"logit scale", false, scale, {}, 1}, 0, false});
  t.layers = text.size_or({"num_hidden_layers"}, 12, most_layers);
  t.block = clip_block(text, hidden, siglip ? 12 : 8);
  t.block.attention.causal = !siglip;
  t.dense = std::get<MlpSpec>(t.block.mlp);
  const std::int64_t positions = text.size_or({"max_position_embeddings"}, siglip ? 64 : 77, 1 << 20);
  set_sizes(t, hidden, text.size_or({"vocab_size"}, siglip ? 32000 : 49408, 1 << 24));
  t.embedding.tokens = "text_model.embeddings.token_embedding";
  t.embedding.positions = positions;
  t.embedding.position_table = "text_model.embeddings.position_embedding";
  t.blocks = "text_model.encoder.layers";
  t.block_sequence = t.fixed_sequence = positions;
  t.head.norm = NormKind::layer, t.head.norm_name = "text_model.final_layer_norm";
  t.head.over = HeadSpec::Over::first_token;
  t.head.name = siglip ? "text_model.head" : "text_projection";
  t.head.bias = siglip;
  t.head.outputs = t.loss.width = siglip ? hidden : projection;
  t.loss.classes = t.loss.over_tokens = false;
  t.head_is_set = true;
  return t;
}

Transformer clip(ConfigReader& config) { return two_towers(config, false); }
Transformer siglip(ConfigReader& config) { return two_towers(config, true); }

/// A vision tower by itself.
Transformer one_tower(ConfigReader& config, bool siglip) {
  Transformer t;
  const Tower tower = clip_tower(config, siglip, "vision_model.");
  t.vision = true;
  t.patches = tower.patches;
  t.layers = tower.depth;
  t.block = tower.block;
  t.dense = std::get<MlpSpec>(t.block.mlp);
  t.blocks = "vision_model.encoder.layers";
  t.embedding.hidden = t.head.hidden = t.block.hidden;
  t.head.norm = NormKind::layer, t.head.norm_name = "vision_model.post_layernorm";
  t.head.name = "vision_model.output";
  t.head.outputs = 0;
  t.loss = {.width = t.block.hidden, .classes = false};
  t.head_is_set = true;
  if (siglip) t.after.push_back(siglip_pooling("vision_model.head", t.block.hidden, t.dense.width, tower.tokens));
  return t;
}

Transformer clip_vision(ConfigReader& config) { return one_tower(config, false); }
Transformer siglip_vision(ConfigReader& config) { return one_tower(config, true); }

/// Windows of an image as sequences; four stages, each of half the side and twice the width of the one before.
Transformer swin(ConfigReader& config) {
  Transformer t;
  const std::int64_t embed = config.size_or({"embed_dim"}, 96), image = config.size_or({"image_size"}, 224, image_limit),
                     patch = config.size_or({"patch_size"}, 4, image_limit), window = config.size_or({"window_size"}, 7, 1 << 10),
                     channels = config.size_or({"num_channels"}, 3, 1 << 12);
  auto depths = config.integers("depths"), heads = config.integers("num_heads");
  if (depths.empty()) depths = {2, 2, 6, 2};
  if (heads.empty()) heads = {3, 6, 12, 24};
  const double ratio = config.real("mlp_ratio", 4);
  const bool bias = config.flag({"qkv_bias"}, true);
  const auto beyond = [](std::int64_t n) { return n < 1 || n > 1024; };
  if (depths.size() != heads.size() || depths.size() > 8 || image < patch || ratio > 64 || embed > (1 << 12) ||
      std::any_of(depths.begin(), depths.end(), beyond) || std::any_of(heads.begin(), heads.end(), beyond)) {
    config.problem("depths", "depths and num_heads must be lists of the same length, and a patch no larger than the image");
    return t;
  }
  PatchSpec p{.hidden = embed,
              .channels = channels,
              .image = image,
              .patch = patch,
              .class_token = false,
              .positions = 0,
              .prefix = "swin.embeddings",
              .norm = NormKind::layer,
              .norm_name = "swin.embeddings.norm"};
  std::int64_t side = image / patch, width = embed;
  t.before.push_back({"swin.embeddings", {"swin patches", false, p, {}, side * side}, 0, false});
  for (std::size_t s = 0; s < depths.size(); ++s) {
    BlockSpec block = plain_block(width, heads[s], static_cast<std::int64_t>(ratio * static_cast<double>(width)), Activation::gelu);
    block.attention.qkv_bias = bias;
    block.attention.bias_rows = (2 * window - 1) * (2 * window - 1);
    block.attention.bias_table = "attention.relative_position_bias_table";
    BlockNames& n = block.names;
    n.attention = "attention", n.q = "attention.q_proj", n.k = "attention.k_proj", n.v = "attention.v_proj", n.out = "attention.o_proj",
    n.attention_norm = "layernorm_before", n.mlp_norm = "layernorm_after";
    const std::int64_t across = std::max<std::int64_t>(1, (side + window - 1) / window);
    const std::string stage = "swin.encoder.layers." + std::to_string(s);
    t.before.push_back({stage + ".blocks",
                        {"swin block of stage " + std::to_string(s + 1), true, block, {}, window * window, across * across},
                        depths[s],
                        true});
    if (s + 1 < depths.size()) {
      side = std::max<std::int64_t>(1, side / 2);
      t.before.push_back(projector(stage + ".downsample", side * side, 4 * width,
                                   {layer_norm("norm", 4 * width), matrix("reduction", 4 * width, 2 * width, false)}));
      width *= 2;
    }
  }
  t.features = side * side * width;
  t.before_widest = static_cast<double>(image) * static_cast<double>(image) * static_cast<double>(8 * embed);
  t.no_embedding = true;
  t.block.hidden = t.embedding.hidden = t.head.hidden = width;
  t.block.attention.heads = t.block.attention.kv_heads = t.block.attention.head_dim = t.block.attention.value_dim = 1;
  t.block_sequence = t.fixed_sequence = side * side;
  t.head.norm = NormKind::layer, t.head.norm_name = "swin.layernorm";
  t.head_is_set = true;
  if (config.architecture().ends_with("Model")) {
    t.head.outputs = 0;
    t.loss = {.width = width, .classes = false};
    return t;
  }
  t.head.over = HeadSpec::Over::first_token;
  t.head.name = "classifier", t.head.bias = true, t.head.outputs = t.loss.width = labels_of(config);
  t.loss.over_tokens = false;
  return t;
}

/// Depthwise 7 x 7 convolutions and pointwise layers; ConvNeXt V2 has response normalisation in place of a scale.
Transformer convnext(ConfigReader& config) {
  Transformer t;
  const bool second = config.text({"model_type"}, "") == "convnextv2";
  const std::int64_t image = config.size_or({"image_size"}, 224, image_limit), patch = config.size_or({"patch_size"}, 4, image_limit),
                     channels = config.size_or({"num_channels"}, 3, 1 << 12);
  auto depths = config.integers("depths"), widths = config.integers("hidden_sizes");
  if (depths.empty()) depths = {3, 3, 9, 3};
  if (widths.empty()) widths = {96, 192, 384, 768};
  if (depths.size() != widths.size() || depths.size() > 8 || image < patch ||
      std::any_of(widths.begin(), widths.end(), [](std::int64_t w) { return w < 1 || w > (1 << 16); }) ||
      std::any_of(depths.begin(), depths.end(), [](std::int64_t d) { return d < 1 || d > 1024; })) {
    config.problem("depths", "depths and hidden_sizes must be lists of the same length, and a patch no larger than the image");
    return t;
  }
  const bool scaled = !second && config.real("layer_scale_init_value", 1e-6) > 0;
  std::int64_t side = image / patch;
  InlineSpec stem{.input = 0};
  stem.modules.push_back({.kind = Kind::conv2d,
                          .name = "patch_embeddings",
                          .in = channels,
                          .out = widths[0],
                          .kernel_height = patch,
                          .kernel_width = patch,
                          .output_height = 1,
                          .output_width = 1,
                          .bias = true});
  stem.modules.push_back(layer_norm("layernorm", widths[0]));
  t.before.push_back({"convnext.embeddings", {"convnext patches", false, stem, {}, side * side}, 0, true});
  for (std::size_t s = 0; s < depths.size(); ++s) {
    const std::int64_t width = widths[s];
    const std::string stage = "convnext.encoder.stages." + std::to_string(s);
    if (s > 0) {
      side = std::max<std::int64_t>(1, side / 2);
      InlineSpec down{.input = 4 * widths[s - 1]};
      down.modules.push_back({.kind = Kind::norm, .name = "downsampling_layer.0", .out = widths[s - 1], .bias = true});
      down.modules.push_back({.kind = Kind::conv2d,
                              .name = "downsampling_layer.1",
                              .in = widths[s - 1],
                              .out = width,
                              .kernel_height = 2,
                              .kernel_width = 2,
                              .output_height = 1,
                              .output_width = 1,
                              .bias = true});
      t.before.push_back({stage, {"convnext downsampling", false, down, {}, side * side}, 0, true});
    }
    InlineSpec layer{.input = width};
    layer.modules.push_back({.kind = Kind::conv2d,
                             .name = "dwconv",
                             .in = width,
                             .out = width,
                             .kernel_height = 7,
                             .kernel_width = 7,
                             .groups = width,
                             .output_height = 1,
                             .output_width = 1,
                             .bias = true});
    layer.modules.push_back(layer_norm("layernorm", width));
    layer.modules.push_back(matrix("pwconv1", width, 4 * width, true));
    layer.modules.push_back(gelu("act"));
    if (second)
      layer.modules.push_back({.kind = Kind::shapes,
                               .name = "grn",
                               .shapes = {{"weight", {1, 1, 1, 4 * width}}, {"bias", {1, 1, 1, 4 * width}}},
                               .multiplies = false});
    layer.modules.push_back(matrix("pwconv2", 4 * width, width, true));
    if (scaled)
      layer.modules.push_back({.kind = Kind::shapes, .name = "", .shapes = {{"layer_scale_parameter", {width}}}, .multiplies = false});
    t.before.push_back(
        {stage + ".layers", {"convnext block of stage " + std::to_string(s + 1), true, layer, {}, side * side}, depths[s], true});
  }
  const std::int64_t width = widths.back();
  t.before_widest = static_cast<double>(image) * static_cast<double>(image) * static_cast<double>(8 * widths[0]);
  t.no_embedding = true;
  t.block.hidden = t.embedding.hidden = t.head.hidden = width;
  t.block.attention.heads = t.block.attention.kv_heads = t.block.attention.head_dim = t.block.attention.value_dim = 1;
  t.block_sequence = t.fixed_sequence = side * side;
  t.head.norm = NormKind::layer, t.head.norm_name = "convnext.layernorm";
  t.head_is_set = true;
  if (config.architecture().ends_with("Model")) {
    t.head.outputs = 0;
    t.loss = {.width = width, .classes = false};
    return t;
  }
  t.head.over = HeadSpec::Over::first_token;
  t.head.name = "classifier", t.head.bias = true, t.head.outputs = t.loss.width = labels_of(config);
  t.loss.over_tokens = false;
  return t;
}

}  // namespace

bool add_vision_tower(const ConfigNode& config, Transformer& text, Problems& problems) {
  const ConfigNode* vision = config.find("vision_config");
  const ConfigNode* type = config.find("model_type");
  if (vision == nullptr || vision->kind != ConfigNode::Kind::map || type == nullptr) return false;
  ConfigReader reader(*vision, problems);
  const std::string whole = type->text, own = reader.text({"model_type"}, "");
  if (whole.starts_with("qwen2_vl") || whole.starts_with("qwen2_5_vl") || whole.starts_with("qwen3_vl"))
    return qwen_in_front(whole, reader, text);
  if (whole == "llama4") return llama4_in_front(reader, text);
  if (own == "clip_vision_model" || own == "siglip_vision_model")
    return clip_in_front(config, whole, reader, own == "siglip_vision_model", text);
  return false;
}

std::span<const Family> vision_families() {
  static const std::array<Family, 6> families{{
      {"clip", {}, clip, true},
      {"siglip", {}, siglip, true},
      {"clip_vision_model", {}, clip_vision},
      {"siglip_vision_model", {}, siglip_vision},
      {"swin", {}, swin},
      {"convnext", {"convnextv2"}, convnext},
  }};
  return families;
}

}  // namespace shardsim
