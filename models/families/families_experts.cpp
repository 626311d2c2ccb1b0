// SPDX-License-Identifier: Apache-2.0
// More mixtures of experts: gpt-oss, Llama 4, OLMoE, Granite MoE, GLM-4.5, MiniMax-M2, HunYuan MoE.
#include <algorithm>
#include <array>

#include "models/families/families.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t most_experts = 1 << 12, most_width = 1 << 22;

MoeSpec read_experts(ConfigReader& config, ConfigReader::Keys experts, ConfigReader::Keys top_k, std::int64_t width) {
  MoeSpec moe{.experts = config.size(experts, most_experts), .top_k = config.size_or(top_k, 2, most_experts), .width = width};
  if (moe.top_k > moe.experts)
    config.problem("num_experts_per_tok", std::to_string(moe.top_k) + " experts per token, but there are " + std::to_string(moe.experts));
  return moe;
}

/// Attention with sinks and biases, a window in every second layer; experts with biases.
Transformer gpt_oss(ConfigReader& config) {
  Transformer t = llama_like(config);
  AttentionSpec& a = t.block.attention;
  a.qkv_bias = a.out_bias = config.flag({"attention_bias"}, true);
  a.sinks = true;
  MoeSpec moe = read_experts(config, {"num_local_experts", "num_experts"}, {"num_experts_per_tok", "experts_per_token"}, t.dense.width);
  moe.bias = true;
  t.block.mlp = moe;
  t.block.names.router = "mlp.router";
  alternate_windows(config, t, config.size_or({"sliding_window"}, 128, std::int64_t{1} << 40, 0), 2);
  return t;
}

/// A shared expert as wide as the routed ones; every interleave_moe_layer_step-th layer has experts, the others a plain part of
/// intermediate_size_mlp. Three layers of four see chunks.
Transformer llama4(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qkv_bias = t.block.attention.out_bias = config.flag({"attention_bias"}, false);
  MoeSpec moe = read_experts(config, {"num_local_experts"}, {"num_experts_per_tok"}, t.dense.width);
  if (config.node().find("num_experts_per_tok") == nullptr) moe.top_k = 1;
  moe.shared_width = t.dense.width;
  t.dense.width = config.size_or({"intermediate_size_mlp"}, 16384, most_width);
  t.block.mlp = moe;
  BlockNames& n = t.block.names;
  n.mlp = "feed_forward", n.router = "feed_forward.router", n.experts = "feed_forward.experts", n.shared = "feed_forward.shared_expert";
  n.gate = "feed_forward.gate_proj", n.up = "feed_forward.up_proj", n.down = "feed_forward.down_proj";
  const std::int64_t step = config.size_or({"interleave_moe_layer_step"}, 1, 1 << 12);
  const auto listed = config.integers("moe_layers");
  t.dense_layers.assign(static_cast<std::size_t>(t.layers), false);
  for (std::int64_t i = 0; i < t.layers; ++i)
    t.dense_layers[static_cast<std::size_t>(i)] =
        listed.empty() ? (i + 1) % step != 0 : std::find(listed.begin(), listed.end(), i) == listed.end();
  t.windows.assign(static_cast<std::size_t>(t.layers), config.size_or({"attention_chunk_size"}, 8192, std::int64_t{1} << 40, 0));
  const std::int64_t period = config.size_or({"no_rope_layer_interval"}, 4, 1 << 12);
  const auto rope = config.integers("no_rope_layers");  // 1: rotary and in chunks
  for (std::size_t i = 0; i < t.windows.size(); ++i)
    if (rope.size() == t.windows.size() ? rope[i] == 0 : (static_cast<std::int64_t>(i) + 1) % period == 0) t.windows[i] = 0;
  if (config.node().find("use_qk_norm") != nullptr) static_cast<void>(config.flag({"use_qk_norm"}, true));  // without weights
  for (const char* key : {"floor_scale", "attn_scale", "attn_temperature_tuning"}) static_cast<void>(config.node().find(key));
  return t;
}

Transformer olmoe(ConfigReader& config) {
  Transformer t = llama_like(config);
  AttentionSpec& a = t.block.attention;
  a.qkv_bias = a.out_bias = config.flag({"attention_bias"}, false);
  a.qk_norm = NormKind::rms;
  a.qk_norm_over_all_heads = true;
  MoeSpec moe = read_experts(config, {"num_experts", "num_local_experts"}, {"num_experts_per_tok"}, t.dense.width);
  if (config.node().find("num_experts_per_tok") == nullptr) moe.top_k = 8;
  moe.activation = t.dense.activation;
  t.block.mlp = moe;
  return t;
}

Transformer granitemoe(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qkv_bias = t.block.attention.out_bias = config.flag({"attention_bias"}, false);
  MoeSpec moe = read_experts(config, {"num_local_experts"}, {"num_experts_per_tok"}, t.dense.width);
  moe.shared_width = config.size_or({"shared_intermediate_size"}, 0, most_width, 0);
  t.block.mlp = moe;
  BlockNames& n = t.block.names;
  n.mlp = "block_sparse_moe", n.router = "block_sparse_moe.router", n.experts = "block_sparse_moe.experts", n.shared = "shared_mlp";
  return t;
}

/// DeepSeek-V3's experts on Llama's attention. The router's correction bias is a buffer here.
Transformer glm4_moe(ConfigReader& config) {
  Transformer t = llama_like(config);
  AttentionSpec& a = t.block.attention;
  a.qkv_bias = config.flag({"attention_bias"}, false);
  if (config.flag({"use_qk_norm"}, false)) a.qk_norm = NormKind::rms;
  MoeSpec moe =
      read_experts(config, {"n_routed_experts"}, {"num_experts_per_tok"}, config.size_or({"moe_intermediate_size"}, 1408, most_width));
  if (config.node().find("num_experts_per_tok") == nullptr) moe.top_k = 8;
  moe.shared_width = config.size_or({"n_shared_experts"}, 1, most_experts, 0) * moe.width;
  t.block.mlp = moe;
  t.block.names.shared = "mlp.shared_experts";
  const std::int64_t dense = config.size_or({"first_k_dense_replace"}, 1, 1 << 12, 0);
  t.dense_layers.assign(static_cast<std::size_t>(t.layers), false);
  for (std::int64_t i = 0; i < std::min(dense, t.layers); ++i) t.dense_layers[static_cast<std::size_t>(i)] = true;
  if (config.size_or({"num_nextn_predict_layers"}, 0, 1 << 12, 0) > 0)
    t.warnings.emplace_back("num_nextn_predict_layers: the layers that predict further tokens are left out, as in transformers");
  return t;
}

Transformer minimax_m2(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qk_norm = NormKind::rms;
  t.block.attention.qk_norm_over_all_heads = true;
  MoeSpec moe = read_experts(config, {"num_local_experts"}, {"num_experts_per_tok"}, t.dense.width);
  if (config.node().find("num_experts_per_tok") == nullptr) moe.top_k = 8;
  t.block.mlp = moe;
  return t;
}

Transformer hunyuan_moe(ConfigReader& config) {
  Transformer t = llama_like(config);
  AttentionSpec& a = t.block.attention;
  a.qkv_bias = a.out_bias = config.flag({"attention_bias"}, false);
  a.qk_norm = NormKind::rms;
  BlockNames& n = t.block.names;
  n.q_norm = "self_attn.query_layernorm", n.k_norm = "self_attn.key_layernorm", n.router = "mlp.gate.wg", n.shared = "mlp.shared_mlp";
  const ConfigNode* many = config.node().find("num_experts");
  if (many != nullptr && many->kind == ConfigNode::Kind::list) {
    config.problem("num_experts", "a number of experts for each layer is not modelled");
    return t;
  }
  const ConfigNode* chosen = config.node().find("moe_topk");
  const bool listed = chosen != nullptr && chosen->kind == ConfigNode::Kind::list;
  MoeSpec moe = read_experts(config, {"num_experts", "num_local_experts"}, {"num_experts_per_tok"},
                             config.size_or({"moe_intermediate_size_of_each"}, t.dense.width, most_width));
  if (listed) {
    const auto each = config.integers("moe_topk");
    moe.top_k = each.empty() ? 1 : each.front();
  } else {
    moe.top_k = config.size_or({"moe_topk", "num_experts_per_tok"}, 1, most_experts);
  }
  moe.shared_width = config.flag({"use_mixed_mlp_moe"}, true) ? t.dense.width : 0;
  t.block.mlp = moe;
  return t;
}

}  // namespace

std::span<const Family> expert_families() {
  static const std::array<Family, 7> families{{
      {"gpt_oss",
       {},
       gpt_oss,
       false,
       R"({"vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 128})"},
      {"llama4",
       {"llama4_text"},
       llama4,
       false,
       R"({"vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 16})"},
      {"olmoe",
       {},
       olmoe,
       false,
       R"({"vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16, "num_experts": 64})"},
      {"granitemoe",
       {"granitemoeshared"},
       granitemoe,
       false,
       R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_local_experts": 8})"},
      {"glm4_moe",
       {},
       glm4_moe,
       false,
       R"({"vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8, "n_routed_experts": 128})"},
      {"minimax_m2",
       {},
       minimax_m2,
       false,
       R"({"vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62, "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 256})"},
      {"hunyuan_v1_moe",
       {},
       hunyuan_moe,
       false,
       R"({"vocab_size": 290943, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_experts": 1})"},
  }};
  return families;
}

}  // namespace shardsim
