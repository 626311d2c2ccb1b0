// SPDX-License-Identifier: Apache-2.0
// Decoders that vary Llama's or GPT-2's layer in norms, biases, projections or the way their branches stand: GLM, SmolLM3, Granite,
// StarCoder, Cohere, Nemotron, StableLM, HunYuan, ERNIE, EXAONE, Seed-OSS, GPT-Neo.
#include <algorithm>
#include <array>

#include "models/families/families.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t any_window = std::int64_t{1} << 40;

void biases(ConfigReader& config, Transformer& t, bool fallback) {
  t.block.attention.qkv_bias = t.block.attention.out_bias = config.flag({"attention_bias", "use_bias"}, fallback);
  t.dense.bias = config.flag({"mlp_bias", "use_bias"}, false);
  t.block.mlp = t.dense;
}

Transformer fused_gate_llama(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qkv_bias = config.flag({"attention_bias"}, true);
  t.dense.fused_gate_up = true;
  t.block.mlp = t.dense;
  t.block.names.gate_up = "mlp.gate_up_proj";
  return t;
}

/// GLM-4 (2024): Llama's norms, fused gate and up, biases on queries, keys and values.
Transformer glm(ConfigReader& config) { return fused_gate_llama(config); }

/// GLM-4-0414: norms after the branches, too.
Transformer glm4(ConfigReader& config) {
  Transformer t = fused_gate_llama(config);
  t.block.residual = Residual::sandwich;
  t.block.names.after_attention_norm = "post_self_attn_layernorm";
  t.block.names.after_mlp_norm = "post_mlp_layernorm";
  return t;
}

Transformer smollm3(ConfigReader& config) {
  Transformer t = llama_like(config);
  biases(config, t, false);
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

Transformer granite(ConfigReader& config) {
  Transformer t = llama_like(config);
  biases(config, t, false);
  return t;
}

Transformer seed_oss(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qkv_bias = config.flag({"attention_bias"}, true);
  t.block.attention.out_bias = config.flag({"attention_out_bias"}, false);
  t.dense.bias = config.flag({"mlp_bias"}, false);
  t.block.mlp = t.dense;
  return t;
}

Transformer ernie(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qkv_bias = t.block.attention.out_bias = t.dense.bias = config.flag({"use_bias"}, false);
  t.block.mlp = t.dense;
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

Transformer ministral(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.window = config.size_or({"sliding_window"}, 0, any_window, 0);
  return t;
}

Transformer hunyuan(ConfigReader& config) {
  Transformer t = llama_like(config);
  AttentionSpec& a = t.block.attention;
  a.qkv_bias = a.out_bias = config.flag({"attention_bias"}, false);
  a.qk_norm = NormKind::rms;
  t.block.names.q_norm = "self_attn.query_layernorm";
  t.block.names.k_norm = "self_attn.key_layernorm";
  return t;
}

/// Norms after the branches, and on queries and keys.
Transformer exaone4(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qk_norm = NormKind::rms;
  t.block.residual = Residual::branch;
  t.block.names.attention_norm = t.block.names.mlp_norm = "";
  t.block.names.after_attention_norm = "post_attention_layernorm";
  t.block.names.after_mlp_norm = "post_feedforward_layernorm";
  return t;
}

Transformer starcoder2(ConfigReader& config) {
  Transformer t = llama_like(config);
  const bool biased = config.flag({"use_bias"}, true);
  t.dense = {.width = t.dense.width,
             .gated = false,
             .bias = biased,
             .activation = config.activation({"hidden_act"}, "gelu_pytorch_tanh", t.warnings)};
  t.block.mlp = t.dense;
  t.block.attention.qkv_bias = t.block.attention.out_bias = biased;
  t.block.attention.window = config.size_or({"sliding_window"}, 0, any_window, 0);
  t.block.norm = t.head.norm = NormKind::layer;
  t.block.names.up = "mlp.c_fc";
  t.block.names.down = "mlp.c_proj";
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

/// GPT-2's layer with one key-value head (SantaCoder, StarCoder).
Transformer gpt_bigcode(ConfigReader& config) {
  std::vector<std::string> warnings;
  const Activation activation = config.activation({"activation_function"}, "gelu_pytorch_tanh", warnings);
  const std::int64_t hidden = config.size({"n_embd", "hidden_size"}), heads = config.size({"n_head", "num_attention_heads"}, 1 << 14);
  Transformer t = gpt_like(config, hidden, config.size({"n_layer", "num_hidden_layers"}, 1 << 12), heads,
                           config.size({"vocab_size"}, 1 << 24), config.size_or({"n_inner"}, 4 * hidden, 1 << 22), activation);
  t.warnings = std::move(warnings);
  t.embedding.tokens = "transformer.wte";
  t.embedding.position_table = "transformer.wpe";
  t.embedding.positions = t.learned_positions = config.size_or({"n_positions", "max_position_embeddings"}, 1024, 1 << 24);
  t.head.norm_name = "transformer.ln_f";
  t.blocks = "transformer.h";
  read_heads(config, t.block.attention, hidden, heads, config.flag({"multi_query"}, true) ? 1 : heads);
  t.block.attention.projection = AttentionSpec::Projection::fused;
  t.block.attention.qkv_bias = t.block.attention.out_bias = true;
  t.block.attention.rotary = false;
  BlockNames& n = t.block.names;
  n.attention = "attn", n.qkv = "attn.c_attn", n.out = "attn.c_proj", n.attention_norm = "ln_1", n.mlp_norm = "ln_2", n.up = "mlp.c_fc",
  n.down = "mlp.c_proj";
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

/// Parallel branches on one LayerNorm without bias, tied head; norms on queries and keys have a weight for each head.
Transformer cohere(ConfigReader& config) {
  Transformer t = llama_like(config);
  AttentionSpec& a = t.block.attention;
  a.qkv_bias = a.out_bias = config.flag({"attention_bias"}, false);
  if (config.flag({"use_qk_norm"}, false)) {
    a.qk_norm = NormKind::layer_without_bias;
    a.qk_norm_over_all_heads = true;
  }
  t.block.norm = t.head.norm = NormKind::layer_without_bias;
  t.block.residual = Residual::parallel;
  t.block.one_norm = true;
  tie(t, config.flag({"tie_word_embeddings"}, true));
  if (config.text({"model_type"}, "") == "cohere2")
    alternate_windows(config, t, config.size_or({"sliding_window"}, 4096, any_window, 0),
                      config.size_or({"sliding_window_pattern", "_sliding_window_pattern"}, 4, 1 << 12));
  return t;
}

/// Squared ReLU, LayerNorm with bias, no gate.
Transformer nemotron(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.warnings.clear();
  t.dense = {.width = t.dense.width, .gated = false, .bias = config.flag({"mlp_bias"}, false), .activation = Activation::other};
  t.block.mlp = t.dense;
  t.block.attention.qkv_bias = t.block.attention.out_bias = config.flag({"attention_bias"}, false);
  t.block.norm = t.head.norm = NormKind::layer;
  return t;
}

Transformer stablelm(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qkv_bias = config.flag({"use_qkv_bias"}, false);
  t.block.norm = t.head.norm = NormKind::layer;
  if (config.flag({"qk_layernorm"}, false)) {
    t.block.attention.qk_norm = NormKind::layer_without_bias;
    t.block.attention.qk_norm_over_all_heads = true;
  }
  if (config.flag({"use_parallel_residual"}, false)) t.block.residual = Residual::parallel, t.block.one_norm = true;
  return t;
}

/// Separate projections without biases; every second layer sees a window of 256 tokens.
Transformer gpt_neo(ConfigReader& config) {
  std::vector<std::string> warnings;
  const Activation activation = config.activation({"activation_function"}, "gelu_new", warnings);
  const std::int64_t hidden = config.size({"hidden_size"});
  Transformer t = gpt_like(config, hidden, config.size({"num_layers", "num_hidden_layers"}, 1 << 12),
                           config.size({"num_heads", "num_attention_heads"}, 1 << 14), config.size({"vocab_size"}, 1 << 24),
                           config.size_or({"intermediate_size"}, 4 * hidden, 1 << 22), activation);
  t.warnings = std::move(warnings);
  t.embedding.tokens = "transformer.wte";
  t.embedding.position_table = "transformer.wpe";
  t.embedding.positions = t.learned_positions = config.size_or({"max_position_embeddings"}, 2048, 1 << 24);
  t.head.norm_name = "transformer.ln_f";
  t.blocks = "transformer.h";
  t.block.attention.qkv_bias = false;
  t.block.attention.rotary = false;
  BlockNames& n = t.block.names;
  n.attention = "attn.attention", n.q = "attn.attention.q_proj", n.k = "attn.attention.k_proj", n.v = "attn.attention.v_proj",
  n.out = "attn.attention.out_proj";
  n.attention_norm = "ln_1", n.mlp_norm = "ln_2", n.up = "mlp.c_fc", n.down = "mlp.c_proj";
  if (config.entries("attention_types") > 0) {
    t.windows.assign(static_cast<std::size_t>(t.layers), 0);
    for (std::size_t i = 1; i < t.windows.size(); i += 2) t.windows[i] = config.size_or({"window_size"}, 256, any_window);
  }
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

}  // namespace

std::span<const Family> dense_families() {
  static const std::array<Family, 15> families{{
      {"glm",
       {},
       glm,
       false,
       R"({"num_key_value_heads": 2, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32, "vocab_size": 151552})"},
      {"glm4",
       {},
       glm4,
       false,
       R"({"num_key_value_heads": 2, "head_dim": 128, "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "num_attention_heads": 32, "vocab_size": 151552})"},
      {"smollm3",
       {},
       smollm3,
       false,
       R"({"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4})"},
      {"granite",
       {},
       granite,
       false,
       R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32})"},
      {"starcoder2",
       {},
       starcoder2,
       false,
       R"({"vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2})"},
      {"gpt_bigcode", {}, gpt_bigcode, false, R"({"vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12})"},
      {"cohere",
       {"cohere2"},
       cohere,
       false,
       R"({"vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40, "num_attention_heads": 64})"},
      {"nemotron",
       {},
       nemotron,
       false,
       R"({"vocab_size": 256000, "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 32, "num_attention_heads": 48, "hidden_act": "relu2"})"},
      {"stablelm",
       {},
       stablelm,
       false,
       R"({"vocab_size": 50304, "hidden_size": 2560, "intermediate_size": 6912, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32})"},
      {"ministral3",
       {"ministral"},
       ministral,
       false,
       R"({"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128})"},
      {"hunyuan_v1_dense",
       {},
       hunyuan,
       false,
       R"({"vocab_size": 290943, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32})"},
      {"ernie4_5",
       {},
       ernie,
       false,
       R"({"vocab_size": 103424, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128})"},
      {"exaone4",
       {},
       exaone4,
       false,
       R"({"vocab_size": 102400, "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32})"},
      {"seed_oss",
       {},
       seed_oss,
       false,
       R"({"vocab_size": 155136, "hidden_size": 4096, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 80, "num_key_value_heads": 8, "head_dim": 128})"},
      {"gpt_neo", {}, gpt_neo, false, R"({"vocab_size": 50257, "hidden_size": 2048, "num_layers": 24, "num_heads": 16})"},
  }};
  return families;
}

}  // namespace shardsim
