// SPDX-License-Identifier: Apache-2.0
// Families with mixtures of experts: Mixtral, Qwen2-MoE, Qwen3-MoE, DeepSeek-V2 and V3.
#include <algorithm>
#include <array>

#include "models/families/families.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t max_experts = 1 << 12, max_moe_width = 1 << 22;

void check_top_k(ConfigReader& config, const MoeSpec& moe) {
  if (moe.top_k > moe.experts)
    config.problem("num_experts_per_tok", std::to_string(moe.top_k) + " experts per token, but there are " + std::to_string(moe.experts));
}

Transformer mixtral(ConfigReader& config) {
  Transformer t = llama_like(config);
  const MoeSpec moe{.experts = config.size({"num_local_experts"}, max_experts),
                    .top_k = config.size_or({"num_experts_per_tok"}, 2, max_experts),
                    .width = t.dense.width,
                    .down_before_up = true,
                    .activation = t.dense.activation};
  check_top_k(config, moe);
  t.block.mlp = moe;
  t.block.attention.window = config.size_or({"sliding_window"}, 0, std::int64_t{1} << 40, 0);
  BlockNames& n = t.block.names;
  n.mlp = "block_sparse_moe", n.router = "block_sparse_moe.gate", n.experts = "block_sparse_moe.experts";
  n.expert_gate = "w1", n.expert_down = "w2", n.expert_up = "w3";
  t.block_registration = {"self_attn", "block_sparse_moe", "input_layernorm", "post_attention_layernorm"};
  return t;
}

/// Layers without experts: those listed, and all but every `decoder_sparse_step`-th.
void qwen_dense_layers(ConfigReader& config, Transformer& t) {
  const std::int64_t step = config.size_or({"decoder_sparse_step"}, 1, 1 << 12);
  const auto listed = config.integers("mlp_only_layers");
  t.dense_layers.assign(static_cast<std::size_t>(t.layers), false);
  for (std::int64_t i = 0; i < t.layers; ++i)
    t.dense_layers[static_cast<std::size_t>(i)] = (i + 1) % step != 0 || std::find(listed.begin(), listed.end(), i) != listed.end();
}

Transformer qwen2_moe(ConfigReader& config) {
  Transformer t = llama_like(config);
  const MoeSpec moe{.experts = config.size({"num_experts", "num_local_experts"}, max_experts),
                    .top_k = config.size_or({"num_experts_per_tok"}, 4, max_experts),
                    .width = config.size({"moe_intermediate_size"}, max_moe_width),
                    .shared_width = config.size({"shared_expert_intermediate_size"}, max_moe_width),
                    .shared_gate = true,
                    .activation = t.dense.activation};
  check_top_k(config, moe);
  t.block.mlp = moe;
  t.block.attention.qkv_bias = config.flag({"qkv_bias"}, true);
  t.block_registration = {"self_attn",
                          "mlp.gate",
                          "mlp.experts",
                          "mlp.shared_expert",
                          "mlp.shared_expert_gate",
                          "mlp",
                          "input_layernorm",
                          "post_attention_layernorm"};
  qwen_dense_layers(config, t);
  return t;
}

Transformer qwen3_moe(ConfigReader& config) {
  Transformer t = llama_like(config);
  const MoeSpec moe{.experts = config.size({"num_experts", "num_local_experts"}, max_experts),
                    .top_k = config.size_or({"num_experts_per_tok"}, 8, max_experts),
                    .width = config.size({"moe_intermediate_size"}, max_moe_width),
                    .activation = t.dense.activation};
  check_top_k(config, moe);
  t.block.mlp = moe;
  AttentionSpec& a = t.block.attention;
  a.qkv_bias = a.out_bias = config.flag({"attention_bias"}, false);
  a.qk_norm = NormKind::rms;
  t.block_registration = {
      "self_attn.q_proj", "self_attn.k_proj",        "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm", "mlp",
      "input_layernorm",  "post_attention_layernorm"};
  qwen_dense_layers(config, t);
  return t;
}

void latent_attention(ConfigReader& config, AttentionSpec& a) {
  a.projection = AttentionSpec::Projection::latent;
  a.query_rank = config.size_or({"q_lora_rank"}, 0, 1 << 20, 0);
  a.kv_rank = config.size({"kv_lora_rank"});
  a.rope_dim = config.size({"qk_rope_head_dim"}, 1 << 14);
  a.head_dim = a.rope_dim + config.size({"qk_nope_head_dim"}, 1 << 14);
  a.value_dim = config.size({"v_head_dim"}, 1 << 14);
  a.kv_heads = a.heads;
  a.latent_bias = a.out_bias = config.flag({"attention_bias"}, false);
}

/// Shared by V2 and V3, which differ in the router's bias.
Transformer deepseek(ConfigReader& config, bool correction_bias) {
  Transformer t;
  const std::int64_t hidden = config.size({"hidden_size"});
  t.layers = config.size({"num_hidden_layers"}, 1 << 12);
  t.block.attention.heads = config.size({"num_attention_heads"}, 1 << 14);
  latent_attention(config, t.block.attention);
  set_sizes(t, hidden, config.size({"vocab_size"}, 1 << 24));
  t.dense = {.width = config.size({"intermediate_size"}, max_moe_width),
             .activation = config.activation({"hidden_act"}, "silu", t.warnings)};
  MoeSpec moe{.experts = config.size({"n_routed_experts"}, max_experts),
              .top_k = config.size({"num_experts_per_tok"}, max_experts),
              .width = config.size({"moe_intermediate_size"}, max_moe_width),
              .correction_bias = correction_bias,
              .activation = t.dense.activation};
  moe.shared_width = config.size_or({"n_shared_experts"}, 0, max_experts, 0) * moe.width;
  check_top_k(config, moe);
  t.block.mlp = moe;
  const std::int64_t dense = config.size_or({"first_k_dense_replace"}, correction_bias ? 3 : 0, 1 << 12, 0);
  const std::int64_t frequency = config.size_or({"moe_layer_freq"}, 1, 1 << 12);
  t.dense_layers.assign(static_cast<std::size_t>(t.layers), false);
  for (std::int64_t i = 0; i < t.layers; ++i) t.dense_layers[static_cast<std::size_t>(i)] = i < dense || i % frequency != 0;
  t.head.norm = NormKind::rms;
  t.head.norm_name = "model.norm";
  t.block.names.shared = "mlp.shared_experts";
  t.block_registration = {
      "self_attn", "mlp.experts", "mlp.gate", "mlp.shared_experts", "mlp", "input_layernorm", "post_attention_layernorm"};
  if (config.size_or({"num_nextn_predict_layers"}, 0, 1 << 12, 0) > 0)
    t.warnings.emplace_back("num_nextn_predict_layers: the layers that predict further tokens are left out, as in transformers");
  tie(t, config.flag({"tie_word_embeddings"}, false));
  return t;
}

Transformer deepseek_v2(ConfigReader& config) { return deepseek(config, false); }
Transformer deepseek_v3(ConfigReader& config) { return deepseek(config, true); }

}  // namespace

std::span<const Family> moe_families() {
  static const std::array<Family, 5> families{{
      {"mixtral",
       {},
       mixtral,
       false,
       R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "num_local_experts": 8})"},
      {"qwen2_moe",
       {},
       qwen2_moe,
       false,
       R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16, "num_experts": 60, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632})"},
      {"qwen3_moe",
       {"qwen3_vl_moe_text"},
       qwen3_moe,
       false,
       R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 4, "num_experts": 128, "moe_intermediate_size": 768})"},
      {"deepseek_v2", {}, deepseek_v2},
      {"deepseek_v3", {"kimi_k2"}, deepseek_v3},
  }};
  return families;
}

}  // namespace shardsim
