// SPDX-License-Identifier: Apache-2.0
// Llama and the families that vary it: gated feed-forward part, RMSNorm or LayerNorm, rotary positions.
#include <algorithm>
#include <array>
#include <utility>

#include "models/families/families.hpp"

namespace shardsim {

void read_heads(ConfigReader& config, AttentionSpec& attention, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
                std::int64_t head_dim_fallback) {
  attention.heads = heads;
  attention.kv_heads = kv_heads;
  if (heads % kv_heads != 0)
    config.problem("num_key_value_heads", std::to_string(kv_heads) + " key-value heads do not divide " + std::to_string(heads) + " heads");
  const std::int64_t given = config.size_or({"head_dim"}, head_dim_fallback, 1 << 14, 0);
  if (given == 0 && hidden % heads != 0)
    config.problem("num_attention_heads", std::to_string(heads) + " heads do not divide the hidden size " + std::to_string(hidden));
  attention.head_dim = attention.value_dim = given > 0 ? given : std::max<std::int64_t>(1, hidden / heads);
}

void set_sizes(Transformer& t, std::int64_t hidden, std::int64_t vocabulary) {
  t.embedding.hidden = t.block.hidden = t.head.hidden = hidden;
  t.embedding.vocabulary = t.head.outputs = t.loss.width = vocabulary;
}

void tie(Transformer& t, bool tied) {
  if (tied) t.head.tied_to = std::string(t.embedding.tokens) + ".weight";
}

Transformer llama_like(ConfigReader& config) {
  Transformer t;
  const std::int64_t hidden = config.size({"hidden_size"});
  t.layers = config.size({"num_hidden_layers"}, 1 << 12);
  const std::int64_t heads = config.size({"num_attention_heads"}, 1 << 14);
  read_heads(config, t.block.attention, hidden, heads, config.kv_heads(heads));
  const std::int64_t vocabulary = config.size({"vocab_size"}, 1 << 24);
  set_sizes(t, hidden, vocabulary);
  t.dense = {.width = config.size({"intermediate_size"}, 1 << 22), .activation = config.activation({"hidden_act"}, "silu", t.warnings)};
  t.block.mlp = t.dense;
  t.block_registration = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"};
  t.head.norm = NormKind::rms;
  t.head.norm_name = "model.norm";
  tie(t, config.flag({"tie_word_embeddings"}, false));
  return t;
}

namespace {

std::vector<std::int64_t> every_layer(const Transformer& t, std::int64_t window) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(t.layers), window);
}

}  // namespace

/// All layers use a window but every `period`-th, or as `layer_types` lists them.
void alternate_windows(ConfigReader& config, Transformer& t, std::int64_t window, std::int64_t period) {
  t.windows = every_layer(t, window);
  const auto types = config.texts("layer_types");
  for (std::size_t i = 0; i < t.windows.size(); ++i) {
    const bool full = types.empty() ? (static_cast<std::int64_t>(i) + 1) % period == 0 : i < types.size() && types[i] == "full_attention";
    if (full) t.windows[i] = 0;
  }
}

namespace {

/// Qwen's switch: the window counts only if asked for, from layer max_window_layers on.
void qwen_window(ConfigReader& config, Transformer& t) {
  const std::int64_t window = config.size_or({"sliding_window"}, 0, std::int64_t{1} << 40, 0);
  if (!config.flag({"use_sliding_window"}, false) || window == 0) return;
  const std::int64_t full = config.size_or({"max_window_layers"}, 28, 1 << 12, 0);
  t.windows = every_layer(t, window);
  for (std::int64_t i = 0; i < std::min(full, t.layers); ++i) t.windows[static_cast<std::size_t>(i)] = 0;
}

void head_norms_after_projections(Transformer& t) {
  t.block_registration = {
      "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "self_attn.q_norm", "self_attn.k_norm", "mlp"};
}

Transformer llama(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qkv_bias = t.block.attention.out_bias = config.flag({"attention_bias"}, false);
  t.dense.bias = config.flag({"mlp_bias"}, false);
  t.block.mlp = t.dense;
  return t;
}

Transformer mistral(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.window = config.size_or({"sliding_window"}, 0, std::int64_t{1} << 40, 0);
  return t;
}

Transformer qwen2(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qkv_bias = true;
  qwen_window(config, t);
  return t;
}

Transformer qwen3(ConfigReader& config) {
  Transformer t = llama_like(config);
  AttentionSpec& a = t.block.attention;
  a.qkv_bias = a.out_bias = config.flag({"attention_bias"}, false);
  a.qk_norm = NormKind::rms;
  head_norms_after_projections(t);
  t.block_registration.insert(t.block_registration.end(), {"input_layernorm", "post_attention_layernorm"});
  qwen_window(config, t);
  return t;
}

/// Shared by Gemma 1 to 3: tied by default, embeddings scaled, norms with an fp32 weight, GELU gates.
Transformer gemma_like(ConfigReader& config, std::int64_t default_heads, std::int64_t default_kv_heads, std::int64_t default_vocabulary) {
  Transformer t;
  const std::int64_t hidden = config.size({"hidden_size"});
  t.layers = config.size({"num_hidden_layers"}, 1 << 12);
  const std::int64_t heads = config.size_or({"num_attention_heads"}, default_heads, 1 << 14);
  read_heads(config, t.block.attention, hidden, heads, config.size_or({"num_key_value_heads"}, default_kv_heads, 1 << 14), 256);
  t.block.attention.qkv_bias = t.block.attention.out_bias = config.flag({"attention_bias"}, false);
  const std::int64_t vocabulary = config.size_or({"vocab_size"}, default_vocabulary, 1 << 24);
  set_sizes(t, hidden, vocabulary);
  t.embedding.scaled = true;
  t.dense = {.width = config.size({"intermediate_size"}, 1 << 22), .activation = Activation::gelu};
  t.block.mlp = t.dense;
  t.block.norm = t.head.norm = NormKind::rms_fp32_weight;
  t.head.norm_name = "model.norm";
  t.block_registration = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"};
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

Transformer gemma(ConfigReader& config) { return gemma_like(config, 16, 16, 256000); }

void sandwich(Transformer& t) {
  t.block.residual = Residual::sandwich;
  t.block.names.after_attention_norm = "post_attention_layernorm";
  t.block.names.mlp_norm = "pre_feedforward_layernorm";
  t.block.names.after_mlp_norm = "post_feedforward_layernorm";
  t.block_registration = {
      "self_attn", "mlp", "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"};
}

Transformer gemma2(ConfigReader& config) {
  Transformer t = gemma_like(config, 8, 4, 256000);
  sandwich(t);
  t.head.softcap = config.real("final_logit_softcapping", 30) > 0;
  alternate_windows(config, t, config.size_or({"sliding_window"}, 4096, std::int64_t{1} << 40, 0), 2);
  return t;
}

Transformer gemma3(ConfigReader& config) {
  Transformer t = gemma_like(config, 8, 4, 262208);
  sandwich(t);
  t.block.attention.qk_norm = NormKind::rms_fp32_weight;
  head_norms_after_projections(t);
  t.block_registration.insert(t.block_registration.end(),
                              {"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"});
  alternate_windows(config, t, config.size_or({"sliding_window"}, 4096, std::int64_t{1} << 40, 0),
                    config.size_or({"sliding_window_pattern", "_sliding_window_pattern"}, 6, 1 << 12));
  return t;
}

Transformer olmo(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qkv_bias = t.block.attention.out_bias = config.flag({"attention_bias"}, false);
  t.block.norm = t.head.norm = NormKind::layer_plain;
  return t;
}

Transformer olmo2(ConfigReader& config) {
  Transformer t = llama_like(config);
  AttentionSpec& a = t.block.attention;
  a.qkv_bias = a.out_bias = config.flag({"attention_bias"}, false);
  a.qk_norm = NormKind::rms;
  a.qk_norm_over_all_heads = true;
  t.block.residual = Residual::branch;
  t.block.names.attention_norm = t.block.names.mlp_norm = "";
  t.block.names.after_attention_norm = "post_attention_layernorm";
  t.block.names.after_mlp_norm = "post_feedforward_layernorm";
  head_norms_after_projections(t);
  t.block_registration.insert(t.block_registration.end(), {"post_attention_layernorm", "post_feedforward_layernorm"});
  // OLMo 3: three layers of four see a window.
  if (config.text({"model_type"}, "") == "olmo3")
    alternate_windows(config, t, config.size_or({"sliding_window"}, 4096, std::int64_t{1} << 40, 0), 4);
  return t;
}

Transformer phi3(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.projection = AttentionSpec::Projection::fused;
  t.block.attention.window = config.size_or({"sliding_window"}, 0, std::int64_t{1} << 40, 0);
  t.block.names.qkv = "self_attn.qkv_proj";
  t.dense.fused_gate_up = true;
  t.block.mlp = t.dense;
  t.block.names.gate_up = "mlp.gate_up_proj";
  t.block_registration = {"self_attn.o_proj", "self_attn.qkv_proj", "mlp", "input_layernorm", "post_attention_layernorm"};
  return t;
}

}  // namespace

std::span<const Family> llama_families() {
  static const std::array<Family, 10> families{{
      {"llama",
       {},
       llama,
       false,
       R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32})"},
      {"mistral",
       {},
       mistral,
       false,
       R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8})"},
      {"qwen2",
       {"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"},
       qwen2,
       false,
       R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32})"},
      {"qwen3",
       {"qwen3_vl_text", "qwen3_vl"},
       qwen3,
       false,
       R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128})"},
      {"gemma", {}, gemma, false, R"({"vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28})"},
      {"gemma2", {}, gemma2, false, R"({"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26})"},
      {"gemma3",
       {"gemma3_text"},
       gemma3,
       false,
       R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26})"},
      {"olmo",
       {},
       olmo,
       false,
       R"({"vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32})"},
      {"olmo2",
       {"olmo3"},
       olmo2,
       false,
       R"({"vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32})"},
      {"phi3",
       {},
       phi3,
       false,
       R"({"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32})"},
  }};
  return families;
}

}  // namespace shardsim
