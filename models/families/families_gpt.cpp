// SPDX-License-Identifier: Apache-2.0
// Families with LayerNorm and a plain feed-forward part: GPT-2, GPT-J, GPT-NeoX, OPT, BLOOM, Falcon, MPT, Phi.
#include <array>
#include <utility>

#include "models/families/families.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t max_layers = 1 << 12, max_heads = 1 << 14, max_vocabulary = 1 << 24, max_width = 1 << 22;

}  // namespace

/// LayerNorm, biases everywhere, one feed-forward matrix up and one down.
Transformer gpt_like(ConfigReader& config, std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t vocabulary,
                     std::int64_t width, Activation activation) {
  Transformer t;
  t.layers = layers;
  read_heads(config, t.block.attention, hidden, heads, heads);
  set_sizes(t, hidden, vocabulary);
  t.dense = {.width = width, .gated = false, .bias = true, .activation = activation};
  t.block.mlp = t.dense;
  t.block.attention.qkv_bias = t.block.attention.out_bias = true;
  t.block.norm = t.head.norm = NormKind::layer;
  t.embedding.dropout = true;
  return t;
}

namespace {

void fuse_qkv(Transformer& t, std::string_view name) {
  t.block.attention.projection = AttentionSpec::Projection::fused;
  t.block.names.qkv = name;
}

void name_mlp(Transformer& t, std::string_view up, std::string_view down) {
  t.block.names.up = up;
  t.block.names.down = down;
}

void learn_positions(Transformer& t, std::string_view table, std::int64_t positions, std::int64_t offset = 0) {
  t.embedding.position_table = table;
  t.embedding.positions = positions + offset;
  t.learned_positions = positions;
  t.block.attention.rotary = false;
}

void transformer_names(Transformer& t, std::string_view tokens, std::string_view final_norm) {
  t.embedding.tokens = tokens;
  t.head.norm_name = final_norm;
  t.blocks = "transformer.h";
}

Transformer gpt2(ConfigReader& config) {
  std::vector<std::string> warnings;
  const Activation activation = config.activation({"activation_function"}, "gelu_new", warnings);
  const std::int64_t hidden = config.size({"n_embd", "hidden_size"});
  Transformer t = gpt_like(config, hidden, config.size({"n_layer", "num_hidden_layers"}, max_layers),
                           config.size({"n_head", "num_attention_heads"}, max_heads), config.size({"vocab_size"}, max_vocabulary),
                           config.size_or({"n_inner"}, 4 * hidden, max_width), activation);
  t.warnings = std::move(warnings);
  transformer_names(t, "transformer.wte", "transformer.ln_f");
  learn_positions(t, "transformer.wpe", config.size_or({"n_positions", "max_position_embeddings"}, 1024, 1 << 24));
  fuse_qkv(t, "attn.c_attn");
  t.block.names.attention = "attn";
  t.block.names.out = "attn.c_proj";
  t.block.names.attention_norm = "ln_1";
  t.block.names.mlp_norm = "ln_2";
  name_mlp(t, "mlp.c_fc", "mlp.c_proj");
  t.dense.transposed = t.block.attention.transposed = true;
  t.block.mlp = t.dense;
  t.block.attention.softmax_in_fp32 = false;
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

Transformer gptj(ConfigReader& config) {
  std::vector<std::string> warnings;
  const Activation activation = config.activation({"activation_function"}, "gelu_new", warnings);
  const std::int64_t hidden = config.size({"n_embd", "hidden_size"});
  Transformer t = gpt_like(config, hidden, config.size({"n_layer", "num_hidden_layers"}, max_layers),
                           config.size({"n_head", "num_attention_heads"}, max_heads), config.size({"vocab_size"}, max_vocabulary),
                           config.size_or({"n_inner"}, 4 * hidden, max_width), activation);
  t.warnings = std::move(warnings);
  transformer_names(t, "transformer.wte", "transformer.ln_f");
  t.block.residual = Residual::parallel;
  t.block.one_norm = true;
  t.block.attention.qkv_bias = t.block.attention.out_bias = false;
  BlockNames& n = t.block.names;
  n.attention = "attn", n.attention_norm = "ln_1", n.q = "attn.q_proj", n.k = "attn.k_proj", n.v = "attn.v_proj", n.out = "attn.out_proj";
  name_mlp(t, "mlp.fc_in", "mlp.fc_out");
  t.block_registration = {"ln_1", "attn.k_proj", "attn.v_proj", "attn.q_proj", "attn.out_proj", "mlp"};
  t.head.bias = true;
  tie(t, config.flag({"tie_word_embeddings"}, false));
  return t;
}

Transformer gpt_neox(ConfigReader& config) {
  std::vector<std::string> warnings;
  const Activation activation = config.activation({"hidden_act"}, "gelu", warnings);
  Transformer t = gpt_like(config, config.size({"hidden_size"}), config.size({"num_hidden_layers"}, max_layers),
                           config.size({"num_attention_heads"}, max_heads), config.size({"vocab_size"}, max_vocabulary),
                           config.size({"intermediate_size"}, max_width), activation);
  t.warnings = std::move(warnings);
  t.embedding.tokens = "gpt_neox.embed_in";
  t.head.norm_name = "gpt_neox.final_layer_norm";
  t.head.name = "embed_out";
  t.blocks = "gpt_neox.layers";
  t.block.residual = config.flag({"use_parallel_residual"}, true) ? Residual::parallel : Residual::pre;
  t.block.norms_first = false;
  t.block.attention.qkv_bias = t.block.attention.out_bias = config.flag({"attention_bias"}, true);
  fuse_qkv(t, "attention.query_key_value");
  t.block.names.attention = "attention";
  t.block.names.out = "attention.dense";
  name_mlp(t, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h");
  t.block_registration = {"input_layernorm", "post_attention_layernorm", "attention", "mlp"};
  tie(t, config.flag({"tie_word_embeddings"}, false));
  return t;
}

Transformer opt(ConfigReader& config) {
  std::vector<std::string> warnings;
  const Activation activation = config.activation({"activation_function"}, "relu", warnings);
  const std::int64_t hidden = config.size({"hidden_size"});
  Transformer t = gpt_like(config, hidden, config.size({"num_hidden_layers"}, max_layers), config.size({"num_attention_heads"}, max_heads),
                           config.size({"vocab_size"}, max_vocabulary), config.size({"ffn_dim"}, max_width), activation);
  t.warnings = std::move(warnings);
  const bool norm_first = config.flag({"do_layer_norm_before"}, true), biased = config.flag({"enable_bias"}, true);
  t.embedding.tokens = "model.decoder.embed_tokens";
  t.blocks = "model.decoder.layers";
  learn_positions(t, "model.decoder.embed_positions", config.size_or({"max_position_embeddings"}, 2048, 1 << 24), 2);
  t.head.norm_name = "model.decoder.final_layer_norm";
  if (!norm_first || config.flag({"_remove_final_layer_norm"}, false)) t.head.norm = NormKind::none;
  if (!norm_first) t.block.residual = Residual::post;
  const std::int64_t width = config.size_or({"word_embed_proj_dim"}, hidden);
  if (width != hidden) {
    t.embedding.width = t.head.width = width;
    t.embedding.project_in = "model.decoder.project_in";
    t.head.project_out = "model.decoder.project_out";
  }
  t.block.attention.qkv_bias = t.block.attention.out_bias = t.dense.bias = biased;
  t.block.mlp = t.dense;
  if (!config.flag({"layer_norm_elementwise_affine"}, true)) {  // Galactica
    t.block.norm = NormKind::layer_plain;
    if (t.head.norm != NormKind::none) t.head.norm = NormKind::layer_plain;
  }
  t.block.names.out = "self_attn.out_proj";
  t.block.names.attention_norm = "self_attn_layer_norm";
  t.block.names.mlp_norm = "final_layer_norm";
  name_mlp(t, "fc1", "fc2");
  t.block_registration = {
      "self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj", "self_attn.out_proj", "self_attn_layer_norm", "fc1", "fc2",
      "final_layer_norm"};
  // The decoder registers its final norm before its layers: DeepSpeed's buckets depend on it.
  t.registration = {"model.decoder.embed_tokens", "model.decoder.embed_positions",  "model.decoder.project_out",
                    "model.decoder.project_in",   "model.decoder.final_layer_norm", "model.decoder.layers"};
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

Transformer bloom(ConfigReader& config) {
  const std::int64_t hidden = config.size({"hidden_size", "n_embed"});
  Transformer t = gpt_like(config, hidden, config.size({"n_layer", "num_hidden_layers"}, max_layers),
                           config.size({"n_head", "num_attention_heads"}, max_heads), config.size({"vocab_size"}, max_vocabulary),
                           4 * hidden, Activation::gelu);
  transformer_names(t, "transformer.word_embeddings", "transformer.ln_f");
  t.embedding.norm = NormKind::layer;
  t.embedding.norm_name = "transformer.word_embeddings_layernorm";
  t.embedding.dropout = false;
  fuse_qkv(t, "self_attention.query_key_value");
  t.block.attention.rotary = false;
  t.block.names.attention = "self_attention";
  t.block.names.out = "self_attention.dense";
  name_mlp(t, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h");
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

/// Norms of a Falcon block: one or two before parallel branches, or one before each of two sequential ones.
void falcon_norms(ConfigReader& config, Transformer& t, bool new_decoder) {
  const bool parallel = config.flag({"parallel_attn"}, true);
  const bool two = config.size_or({"num_ln_in_parallel_attn"}, new_decoder ? 2 : 1, 2) == 2;
  BlockNames& n = t.block.names;
  t.block.residual = parallel ? Residual::parallel : Residual::pre;
  t.block.one_norm = parallel && !two;
  if (parallel && two) n.attention_norm = "ln_attn", n.mlp_norm = "ln_mlp";
}

Transformer falcon(ConfigReader& config) {
  const std::int64_t hidden = config.size({"hidden_size"});
  const std::int64_t heads = config.size({"num_attention_heads", "n_head"}, max_heads);
  const bool new_decoder = config.flag({"new_decoder_architecture"}, false), biased = config.flag({"bias"}, false);
  Transformer t =
      gpt_like(config, hidden, config.size({"num_hidden_layers", "n_layer"}, max_layers), heads,
               config.size({"vocab_size"}, max_vocabulary), config.size_or({"ffn_hidden_size"}, 4 * hidden, max_width), Activation::gelu);
  const std::int64_t grouped = config.size_or({"num_kv_heads", "n_head_kv"}, heads, max_heads);
  const bool multi_query = config.flag({"multi_query"}, true);
  read_heads(config, t.block.attention, hidden, heads, new_decoder ? grouped : multi_query ? 1 : heads);
  transformer_names(t, "transformer.word_embeddings", "transformer.ln_f");
  t.embedding.dropout = false;
  t.block.attention.qkv_bias = t.block.attention.out_bias = t.dense.bias = biased;
  t.block.mlp = t.dense;
  t.block.attention.rotary = !config.flag({"alibi"}, false);
  fuse_qkv(t, "self_attention.query_key_value");
  t.block.names.attention = "self_attention";
  t.block.names.out = "self_attention.dense";
  name_mlp(t, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h");
  falcon_norms(config, t, new_decoder);
  t.block_registration = {"self_attention", "mlp", "ln_attn", "ln_mlp", "input_layernorm", "post_attention_layernorm"};
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

/// llm-foundry's keys below `attn_config`: kinds of attention, positions, norms on queries and keys.
struct MptAttention {
  bool alibi = true, rope = false, qk_norm = false, fused = true;
  std::int64_t kv_heads = 0;
};

MptAttention mpt_attention(ConfigReader& config, std::int64_t heads) {
  MptAttention a;
  a.kv_heads = heads;
  const ConfigNode* section = config.section("attn_config");
  if (section == nullptr) return a;
  ConfigReader reader(*section, config.problems());
  const std::string type = reader.text({"attn_type"}, "multihead_attention");
  a.alibi = reader.flag({"alibi"}, true);
  a.rope = reader.flag({"rope"}, false);
  a.qk_norm = reader.flag({"qk_ln"}, false);
  a.fused = reader.flag({"fused_qkv"}, true);
  a.kv_heads = reader.size_or({"kv_n_heads"}, type == "multiquery_attention" ? 1 : heads, max_heads);
  if (type != "multihead_attention" && type != "multiquery_attention" && type != "grouped_query_attention")
    reader.problem("attn_type", "attn_type '" + type + "' is not known");
  return a;
}

/// `ffn_config`: plain or gated, with a width of its own.
MlpSpec mpt_feed_forward(ConfigReader& config, std::int64_t hidden) {
  const double ratio = config.real("expansion_ratio", 4);
  MlpSpec mlp{.width = static_cast<std::int64_t>(ratio * static_cast<double>(hidden)), .gated = false, .activation = Activation::gelu};
  const ConfigNode* section = config.section("ffn_config");
  if (section == nullptr) return mlp;
  ConfigReader reader(*section, config.problems());
  const std::string type = reader.text({"ffn_type"}, "mptmlp");
  mlp.gated = type == "mptglu" || type == "mptgeglu";
  mlp.width = reader.size_or({"ffn_hidden_size"}, mlp.width, max_width);
  if (!mlp.gated && type != "mptmlp") reader.problem("ffn_type", "ffn_type '" + type + "' is not known");
  if (const ConfigNode* function = reader.section("ffn_act_fn")) {
    std::vector<std::string> warnings;
    mlp.activation = ConfigReader(*function, config.problems()).activation({"name"}, "gelu", warnings);
  }
  return mlp;
}

/// transformers has no biases and ALiBi; llm-foundry's own class also knows biases, learned and rotary positions, grouped heads, gates and
/// RMSNorm.
Transformer mpt(ConfigReader& config) {
  const std::int64_t hidden = config.size({"d_model", "hidden_size"}), heads = config.size({"n_heads", "num_attention_heads"}, max_heads);
  MlpSpec mlp = mpt_feed_forward(config, hidden);
  Transformer t = gpt_like(config, hidden, config.size({"n_layers", "num_hidden_layers"}, max_layers), heads,
                           config.size({"vocab_size"}, max_vocabulary), mlp.width, mlp.activation);
  const bool biased = !config.flag({"no_bias"}, true);
  const MptAttention a = mpt_attention(config, heads);
  t.embedding.tokens = "transformer.wte";
  t.head.norm_name = "transformer.norm_f";
  t.blocks = "transformer.blocks";
  t.embedding.dropout = false;
  read_heads(config, t.block.attention, hidden, heads, a.kv_heads);
  t.block.attention.rotary = a.rope;
  t.block.attention.qkv_bias = t.block.attention.out_bias = mlp.bias = biased;
  if (mlp.width < 1 || mlp.width > max_width)
    config.problem("expansion_ratio", "the width of the feed-forward part is not from 1 to " + std::to_string(max_width));
  t.dense = mlp;
  t.block.mlp = t.dense;
  const bool rms = config.text({"norm_type"}, "low_precision_layernorm").find("rms") != std::string::npos;
  t.block.norm = t.head.norm = rms ? NormKind::rms : biased ? NormKind::layer : NormKind::layer_without_bias;
  BlockNames& n = t.block.names;
  n.attention = "attn", n.mlp = "ffn", n.out = "attn.out_proj", n.attention_norm = "norm_1", n.mlp_norm = "norm_2";
  if (a.fused) {
    fuse_qkv(t, "attn.Wqkv");
  } else {
    n.q = "attn.Wq", n.k = "attn.Wk", n.v = "attn.Wv";
  }
  if (a.qk_norm) {  // on whole queries and keys, after the fused projection
    n.q_norm = "attn.q_ln", n.k_norm = "attn.k_ln";
    t.block.attention.projection = AttentionSpec::Projection::separate;
    n.q = "attn.Wq", n.k = "attn.Wk", n.v = "attn.Wv";
    t.block.attention.qk_norm = t.block.norm;
    t.block.attention.qk_norm_over_all_heads = true;
  }
  n.gate = "ffn.gate_proj";
  name_mlp(t, "ffn.up_proj", "ffn.down_proj");
  if (!a.alibi && !a.rope && config.flag({"learned_pos_emb"}, false))
    learn_positions(t, "transformer.wpe", config.size_or({"max_seq_len"}, 2048, 1 << 24));
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

/// Phi 1, 1.5 and 2: parallel branches on one norm, biases everywhere, the head's included.
Transformer phi(ConfigReader& config) {
  std::vector<std::string> warnings;
  const Activation activation = config.activation({"hidden_act"}, "gelu_new", warnings);
  const std::int64_t hidden = config.size({"hidden_size"});
  const std::int64_t heads = config.size({"num_attention_heads"}, max_heads);
  Transformer t = gpt_like(config, hidden, config.size({"num_hidden_layers"}, max_layers), heads,
                           config.size({"vocab_size"}, max_vocabulary), config.size({"intermediate_size"}, max_width), activation);
  t.warnings = std::move(warnings);
  read_heads(config, t.block.attention, hidden, heads, config.size_or({"num_key_value_heads"}, heads, max_heads));
  t.head.norm_name = "model.final_layernorm";
  t.head.bias = true;
  t.block.residual = Residual::parallel;
  t.block.one_norm = true;
  t.block.names.out = "self_attn.dense";
  t.block.names.q_norm = "self_attn.q_layernorm";
  t.block.names.k_norm = "self_attn.k_layernorm";
  if (config.flag({"qk_layernorm"}, false)) t.block.attention.qk_norm = NormKind::layer;
  name_mlp(t, "mlp.fc1", "mlp.fc2");
  t.block_registration = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense", "self_attn", "mlp",
                          "input_layernorm"};
  tie(t, config.flag({"tie_word_embeddings"}, false));
  return t;
}

}  // namespace

std::span<const Family> gpt_families() {
  static const std::array<Family, 8> families{{
      {"gpt2", {}, gpt2, false, R"({"vocab_size": 50257, "n_embd": 768, "n_layer": 12, "n_head": 12})"},
      {"gptj", {}, gptj, false, R"({"vocab_size": 50400, "n_embd": 4096, "n_layer": 28, "n_head": 16})"},
      {"gpt_neox",
       {},
       gpt_neox,
       false,
       R"({"vocab_size": 50432, "hidden_size": 6144, "intermediate_size": 24576, "num_hidden_layers": 44, "num_attention_heads": 64})"},
      {"opt",
       {},
       opt,
       false,
       R"({"vocab_size": 50272, "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12})"},
      {"bloom", {}, bloom, false, R"({"vocab_size": 250880, "hidden_size": 64, "n_layer": 2, "n_head": 8})"},
      {"falcon", {}, falcon, false, R"({"vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71})"},
      {"mpt", {}, mpt, false, R"({"vocab_size": 50368, "d_model": 2048, "n_layers": 24, "n_heads": 16})"},
      {"phi",
       {},
       phi,
       false,
       R"({"vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 32})"},
  }};
  return families;
}

}  // namespace shardsim
