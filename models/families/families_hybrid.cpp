// SPDX-License-Identifier: Apache-2.0
// Families whose layers carry a state along the sequence, alone or among attention layers: Mamba, Mamba-2, Jamba, Falcon-H1, Granite 4,
// Qwen3-Next, MiniMax; and Gemma 3n.
#include <algorithm>
#include <array>

#include "models/families/families.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t most = 1 << 20, widest_part = 1 << 22;

/// Mamba-2's mixer (transformers, Mamba2Mixer) by its sizes.
ScanSpec mamba2_mixer(std::int64_t inner, std::int64_t heads, std::int64_t groups, std::int64_t state, std::int64_t kernel,
                      std::int64_t chunk, bool projection_bias, bool convolution_bias, bool with_norm) {
  ScanSpec scan;
  scan.channels = inner + 2 * groups * state;
  scan.kernel = kernel;
  scan.convolution_bias = convolution_bias;
  scan.in = {{"in_proj", 0, inner + scan.channels + heads, projection_bias}};
  scan.parameters = {{"dt_bias", {heads}}, {"A_log", {heads}}, {"D", {heads}}};
  scan.heads = heads, scan.head_dim = std::max<std::int64_t>(1, inner / heads), scan.state = state, scan.groups = groups,
  scan.chunk = chunk;
  scan.width = inner;
  if (with_norm) scan.norm = "norm", scan.norm_size = inner;
  scan.out = {"out_proj", inner, 0, projection_bias};
  return scan;
}

/// Mamba's mixer (MambaMixer): a scan token by token, its step from a low-rank projection.
ScanSpec mamba_mixer(std::int64_t inner, std::int64_t state, std::int64_t rank, std::int64_t kernel, bool projection_bias,
                     bool convolution_bias) {
  ScanSpec scan;
  scan.channels = inner;
  scan.kernel = kernel;
  scan.convolution_bias = convolution_bias;
  scan.in = {{"in_proj", 0, 2 * inner, projection_bias}};
  scan.inner = {{"x_proj", inner, rank + 2 * state, false}, {"dt_proj", rank, inner, true}};
  scan.parameters = {{"A_log", {inner, state}}, {"D", {inner}}};
  scan.heads = 1, scan.head_dim = inner, scan.state = state;
  scan.width = inner;
  scan.out = {"out_proj", inner, 0, projection_bias};
  return scan;
}

Transformer scan_only(ConfigReader& config, ScanSpec scan, std::int64_t hidden) {
  Transformer t;
  t.layers = config.size({"num_hidden_layers", "n_layer"}, 1 << 12);
  set_sizes(t, hidden, config.size({"vocab_size"}, 1 << 24));
  t.embedding.tokens = "backbone.embeddings";
  t.blocks = "backbone.layers";
  t.block.scan = std::move(scan);
  t.block.feed_forward = false;
  t.block.attention.heads = t.block.attention.kv_heads = t.block.attention.head_dim = t.block.attention.value_dim = 1;
  t.block.names.attention_norm = "norm";
  t.block.mlp = MlpSpec{};
  t.head.norm = NormKind::rms;
  t.head.norm_name = "backbone.norm_f";
  return t;
}

Transformer mamba(ConfigReader& config) {
  const std::int64_t hidden = config.size({"hidden_size", "d_model"}),
                     inner = config.size_or({"intermediate_size"}, config.size_or({"expand"}, 2, 64) * hidden, widest_part);
  const ConfigNode* rank = config.node().find("time_step_rank");
  const std::int64_t low = rank != nullptr && rank->text != "auto" ? config.size_or({"time_step_rank"}, 1, most) : (hidden + 15) / 16;
  Transformer t = scan_only(config,
                            mamba_mixer(inner, config.size_or({"state_size"}, 16, most), low, config.size_or({"conv_kernel"}, 4, 64),
                                        config.flag({"use_bias"}, false), config.flag({"use_conv_bias"}, true)),
                            hidden);
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

Transformer mamba2(ConfigReader& config) {
  const std::int64_t hidden = config.size({"hidden_size"}), inner = config.size_or({"expand"}, 2, 64) * hidden;
  const std::int64_t head_dim = config.size_or({"head_dim"}, 64, 1 << 14),
                     heads = config.size_or({"num_heads"}, std::max<std::int64_t>(1, inner / head_dim), most);
  if (heads * head_dim != inner)
    config.problem("num_heads",
                   std::to_string(heads) + " heads of " + std::to_string(head_dim) + " are not the inner width " + std::to_string(inner));
  Transformer t = scan_only(config,
                            mamba2_mixer(inner, heads, config.size_or({"n_groups"}, 8, most), config.size_or({"state_size"}, 128, most),
                                         config.size_or({"conv_kernel"}, 4, 64), config.size_or({"chunk_size"}, 256, most),
                                         config.flag({"use_bias"}, false), config.flag({"use_conv_bias"}, true), true),
                            hidden);
  tie(t, config.flag({"tie_word_embeddings"}, false));
  return t;
}

/// Attention in one layer of attn_layer_period, experts in one of expert_layer_period, Mamba in the others.
Transformer jamba(ConfigReader& config) {
  Transformer t = llama_like(config);
  const std::int64_t hidden = t.block.hidden, inner = config.size_or({"mamba_expand"}, 2, 64) * hidden;
  const ConfigNode* rank = config.node().find("mamba_dt_rank");
  const std::int64_t low = rank != nullptr && rank->text != "auto" ? config.size_or({"mamba_dt_rank"}, 1, most) : (hidden + 15) / 16,
                     state = config.size_or({"mamba_d_state"}, 16, most);
  ScanSpec scan = mamba_mixer(inner, state, low, config.size_or({"mamba_d_conv"}, 4, 64), config.flag({"mamba_proj_bias"}, false),
                              config.flag({"mamba_conv_bias"}, true));
  scan.name = "mamba";
  scan.inner_norms = {{"dt_layernorm", low}, {"b_layernorm", state}, {"c_layernorm", state}};
  BlockNames& n = t.block.names;
  n.mlp = "feed_forward", n.gate = "feed_forward.gate_proj", n.up = "feed_forward.up_proj", n.down = "feed_forward.down_proj";
  n.router = "feed_forward.router", n.experts = "feed_forward.experts", n.mlp_norm = "pre_ff_layernorm";
  t.block.attention.rotary = false;
  t.head.norm_name = "model.final_layernorm";
  MoeSpec moe{.experts = config.size_or({"num_experts"}, 16, 1 << 12),
              .top_k = config.size_or({"num_experts_per_tok"}, 2, 1 << 12),
              .width = t.dense.width};
  const std::int64_t attention_period = config.size_or({"attn_layer_period"}, 8, 1 << 12),
                     attention_offset = config.size_or({"attn_layer_offset"}, 4, 1 << 12, 0);
  const std::int64_t expert_period = config.size_or({"expert_layer_period"}, 2, 1 << 12),
                     expert_offset = config.size_or({"expert_layer_offset"}, 1, 1 << 12, 0);
  for (const bool attention : {false, true})
    for (const bool experts : {false, true}) {
      BlockSpec block = t.block;
      if (!attention) block.scan = scan;
      if (experts && moe.experts > 1) block.mlp = moe;
      t.variants.push_back(std::move(block));
    }
  for (std::int64_t i = 0; i < t.layers; ++i)
    t.kinds.push_back((i % attention_period == attention_offset ? 2U : 0U) + (i % expert_period == expert_offset ? 1U : 0U));
  return t;
}

/// Attention and Mamba-2 side by side on one norm.
Transformer falcon_h1(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qkv_bias = t.block.attention.out_bias = config.flag({"attention_bias"}, false);
  t.dense.bias = config.flag({"mlp_bias"}, false);
  t.block.mlp = t.dense;
  const std::int64_t inner = config.size_or({"mamba_d_ssm"}, config.size_or({"mamba_expand"}, 2, 64) * t.block.hidden, widest_part),
                     heads = config.size_or({"mamba_n_heads"}, 128, most);
  ScanSpec scan =
      mamba2_mixer(inner, heads, config.size_or({"mamba_n_groups"}, 1, most), config.size_or({"mamba_d_state"}, 256, most),
                   config.size_or({"mamba_d_conv"}, 4, 64), config.size_or({"mamba_chunk_size"}, 256, most),
                   config.flag({"mamba_proj_bias"}, false), config.flag({"mamba_conv_bias"}, true), config.flag({"mamba_rms_norm"}, false));
  scan.name = "mamba";
  scan.out.bias = config.flag({"projectors_bias"}, false);
  t.block.scan = std::move(scan);
  t.block.scan_beside_attention = true;
  BlockNames& n = t.block.names;
  n.mlp = "feed_forward", n.gate = "feed_forward.gate_proj", n.up = "feed_forward.up_proj", n.down = "feed_forward.down_proj",
  n.mlp_norm = "pre_ff_layernorm";
  t.head.norm_name = "model.final_layernorm";
  return t;
}

/// Granite 4: Mamba-2 or attention by layer_types; a shared feed-forward part, with experts beside it where there are any.
Transformer granite_hybrid(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.attention.qkv_bias = t.block.attention.out_bias = config.flag({"attention_bias"}, false);
  t.block.attention.rotary = config.text({"position_embedding_type"}, "rope") == "rope";
  const std::int64_t experts = config.size_or({"num_local_experts"}, 8, 1 << 12, 0),
                     shared = config.size_or({"shared_intermediate_size"}, 1024, widest_part);
  BlockNames& n = t.block.names;
  n.mlp = "block_sparse_moe", n.router = "block_sparse_moe.router", n.experts = "block_sparse_moe.experts", n.shared = "shared_mlp";
  if (experts > 0) {
    t.block.mlp = MoeSpec{
        .experts = experts, .top_k = config.size_or({"num_experts_per_tok"}, 2, 1 << 12), .width = t.dense.width, .shared_width = shared};
  } else {
    t.dense = {.width = shared, .fused_gate_up = true};
    t.block.mlp = t.dense;
    n.mlp = "shared_mlp", n.gate_up = "shared_mlp.input_linear", n.down = "shared_mlp.output_linear";
  }
  const std::int64_t inner = config.size_or({"mamba_expand"}, 2, 64) * t.block.hidden, heads = config.size_or({"mamba_n_heads"}, 128, most);
  const auto types = config.texts("layer_types");
  BlockSpec mixer = t.block;
  mixer.scan = mamba2_mixer(inner, heads, config.size_or({"mamba_n_groups"}, 1, most), config.size_or({"mamba_d_state"}, 256, most),
                            config.size_or({"mamba_d_conv"}, 4, 64), config.size_or({"mamba_chunk_size"}, 256, most),
                            config.flag({"mamba_proj_bias"}, false), config.flag({"mamba_conv_bias"}, true), true);
  mixer.scan->name = "mamba";
  t.variants = {mixer, t.block};
  for (std::int64_t i = 0; i < t.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    t.kinds.push_back(at < types.size() && types[at] == "attention" ? 1U : 0U);
  }
  return t;
}

/// Three layers of four run the gated delta rule (arXiv 2412.06464), the fourth attention with a gate on its output; experts everywhere.
Transformer qwen3_next(ConfigReader& config) {
  Transformer t = llama_like(config);
  AttentionSpec& a = t.block.attention;
  a.qkv_bias = a.out_bias = config.flag({"attention_bias"}, false);
  a.qk_norm = NormKind::rms_fp32_weight;
  a.output_gate = true;
  t.block.norm = t.head.norm = NormKind::rms_fp32_weight;
  MoeSpec moe{.experts = config.size_or({"num_experts"}, 512, 1 << 12, 0),
              .top_k = config.size_or({"num_experts_per_tok"}, 10, 1 << 12),
              .width = config.size_or({"moe_intermediate_size"}, 512, widest_part),
              .shared_width = config.size_or({"shared_expert_intermediate_size"}, 512, widest_part),
              .shared_gate = true};
  const std::int64_t step = config.size_or({"decoder_sparse_step"}, 1, 1 << 12);
  const auto listed = config.integers("mlp_only_layers");
  const std::int64_t key_heads = config.size_or({"linear_num_key_heads"}, 16, most),
                     value_heads = config.size_or({"linear_num_value_heads"}, 32, most),
                     key_dim = config.size_or({"linear_key_head_dim"}, 128, 1 << 14),
                     value_dim = config.size_or({"linear_value_head_dim"}, 128, 1 << 14);
  ScanSpec scan;
  scan.name = "linear_attn";
  scan.channels = 2 * key_heads * key_dim + value_heads * value_dim;
  scan.kernel = config.size_or({"linear_conv_kernel_dim"}, 4, 64);
  scan.in = {{"in_proj_qkvz", 0, scan.channels + value_heads * value_dim, false}, {"in_proj_ba", 0, 2 * value_heads, false}};
  scan.parameters = {{"dt_bias", {value_heads}}, {"A_log", {value_heads}}};
  scan.heads = value_heads, scan.head_dim = value_dim, scan.state = key_dim, scan.groups = key_heads, scan.chunk = 64;
  scan.width = value_heads * value_dim;
  scan.norm = "norm", scan.norm_size = value_dim;
  scan.out = {"out_proj", scan.width, 0, false};
  const auto types = config.texts("layer_types");
  const std::int64_t period = config.size_or({"full_attention_interval"}, 4, 1 << 12);
  for (const bool full : {false, true})
    for (const bool experts : {false, true}) {
      BlockSpec block = t.block;
      if (!full) block.scan = scan;
      if (experts && moe.experts > 0) block.mlp = moe;
      t.variants.push_back(std::move(block));
    }
  for (std::int64_t i = 0; i < t.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool full = types.empty() ? (i + 1) % period == 0 : at < types.size() && types[at] == "full_attention";
    const bool experts = (i + 1) % step == 0 && std::find(listed.begin(), listed.end(), i) == listed.end();
    t.kinds.push_back((full ? 2U : 0U) + (experts ? 1U : 0U));
  }
  return t;
}

/// Lightning attention (arXiv 2501.08313) in most layers, full attention in the others; Mixtral's experts.
Transformer minimax(ConfigReader& config) {
  Transformer t = llama_like(config);
  t.block.mlp = MoeSpec{.experts = config.size_or({"num_local_experts"}, 8, 1 << 12),
                        .top_k = config.size_or({"num_experts_per_tok"}, 2, 1 << 12),
                        .width = t.dense.width};
  const AttentionSpec& a = t.block.attention;
  const std::int64_t width = a.heads * a.head_dim;
  ScanSpec scan;
  scan.name = "self_attn";
  scan.in = {{"qkv_proj", 0, 3 * width, false}, {"output_gate", 0, width, false}};
  scan.heads = a.heads, scan.head_dim = a.head_dim, scan.state = a.head_dim, scan.groups = a.heads,
  scan.chunk = config.size_or({"block_size"}, 256, most);
  scan.width = width;
  scan.norm = "norm", scan.norm_size = width;
  scan.out = {"out_proj", width, 0, false};
  BlockSpec linear = t.block;
  linear.scan = scan;
  t.variants = {linear, t.block};
  const auto types = config.texts("layer_types");
  const auto flags = config.integers("attn_type_list");  // of the checkpoint's own code: 1 is full attention
  for (std::int64_t i = 0; i < t.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool full = !types.empty()   ? at < types.size() && types[at] == "full_attention"
                      : !flags.empty() ? at < flags.size() && flags[at] == 1
                                       : (i + 1) % 2 == 0;
    t.kinds.push_back(full ? 1U : 0U);
  }
  for (const char* key : {"full_attn_alpha_factor", "full_attn_beta_factor", "linear_attn_alpha_factor", "linear_attn_beta_factor",
                          "mlp_alpha_factor", "mlp_beta_factor"})
    static_cast<void>(config.real(key, 1));
  return t;
}

/// Gemma 3's layer in four copies of the stream (AltUp), with low-rank residuals (LAuReL) and embeddings of each layer's own; the last
/// layers use keys and values of an earlier one.
Transformer gemma3n(ConfigReader& config) {
  Transformer t;
  const std::int64_t hidden = config.size({"hidden_size"}), heads = config.size_or({"num_attention_heads"}, 8, 1 << 14),
                     vocabulary = config.size_or({"vocab_size"}, 262400, 1 << 24);
  t.layers = config.size({"num_hidden_layers"}, 1 << 12);
  read_heads(config, t.block.attention, hidden, heads, config.size_or({"num_key_value_heads"}, 2, 1 << 14), 256);
  set_sizes(t, hidden, vocabulary);
  t.embedding.scaled = true;
  const ConfigNode* width = config.node().find("intermediate_size");
  std::int64_t feed_forward = 16384;
  if (width != nullptr && width->kind == ConfigNode::Kind::list) {
    const auto each = config.integers("intermediate_size");
    if (!each.empty()) feed_forward = each.front();
    if (std::any_of(each.begin(), each.end(), [&](std::int64_t w) { return w != each.front(); }))
      config.problem("intermediate_size", "feed-forward widths that differ between layers are not modelled");
  } else {
    feed_forward = config.size_or({"intermediate_size"}, 16384, widest_part);
  }
  t.dense = {.width = feed_forward, .activation = Activation::gelu};
  t.block.mlp = t.dense;
  t.block.norm = t.head.norm = NormKind::rms_fp32_weight;
  t.head.norm_name = "model.norm";
  t.head.softcap = config.real("final_logit_softcapping", 30) > 0;
  t.block.residual = Residual::sandwich;
  BlockNames& n = t.block.names;
  n.after_attention_norm = "post_attention_layernorm", n.mlp_norm = "pre_feedforward_layernorm",
  n.after_mlp_norm = "post_feedforward_layernorm";
  t.block.attention.qk_norm = NormKind::rms_fp32_weight;
  const std::int64_t copies = config.size_or({"altup_num_inputs"}, 4, 64), rank = config.size_or({"laurel_rank"}, 64),
                     own = config.size_or({"hidden_size_per_layer_input"}, 256);
  t.block.extras = {{"altup.correct_output_scale", {hidden}},
                    {"altup.correction_coefs.weight", {copies, copies}},
                    {"altup.prediction_coefs.weight", {copies * copies, copies}},
                    {"altup.modality_router.weight", {copies, hidden}},
                    {"altup.router_norm.weight", {hidden}},
                    {"laurel.linear_left.weight", {rank, hidden}},
                    {"laurel.linear_right.weight", {hidden, rank}},
                    {"laurel.post_laurel_norm.weight", {hidden}},
                    {"per_layer_input_gate.weight", {own, hidden}},
                    {"per_layer_projection.weight", {hidden, own}},
                    {"post_per_layer_input_norm.weight", {hidden}}};
  t.embedding.extras = {
      {"model.embed_tokens_per_layer.weight", {config.size_or({"vocab_size_per_layer_input"}, 262144, 1 << 24), t.layers * own}},
      {"model.per_layer_model_projection.weight", {t.layers * own, hidden}},
      {"model.per_layer_projection_norm.weight", {own}}};
  static constexpr std::array<std::string_view, 6> names{
      "model.altup_projections.0.weight",         "model.altup_projections.1.weight",         "model.altup_projections.2.weight",
      "model.altup_unembed_projections.0.weight", "model.altup_unembed_projections.1.weight", "model.altup_unembed_projections.2.weight"};
  if (copies != 4) config.problem("altup_num_inputs", "AltUp with other than 4 copies of the stream is not modelled");
  for (const std::string_view name : names) t.embedding.extras.emplace_back(name, std::vector<std::int64_t>{hidden, hidden});
  const std::int64_t sharing = config.size_or({"num_kv_shared_layers"}, 15, 1 << 12, 0);
  const auto types = config.texts("layer_types");
  const std::int64_t window = config.size_or({"sliding_window"}, 512, std::int64_t{1} << 40, 0);
  for (const bool shares : {false, true})
    for (const bool full : {false, true}) {
      BlockSpec block = t.block;
      block.attention.own_keys = !shares;
      block.attention.window = full ? 0 : window;
      t.variants.push_back(std::move(block));
    }
  for (std::int64_t i = 0; i < t.layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool full = types.empty() ? (i + 1) % 5 == 0 : at < types.size() && types[at] == "full_attention";
    t.kinds.push_back((i >= t.layers - sharing ? 2U : 0U) + (full ? 1U : 0U));
  }
  for (const char* key :
       {"activation_sparsity_pattern", "altup_active_idx", "altup_coef_clip", "altup_correct_scale", "altup_lr_multiplier"})
    static_cast<void>(config.entries(key));
  t.warnings.emplace_back("AltUp and LAuReL are counted as plain projections; the four copies of the stream are not kept");
  tie(t, config.flag({"tie_word_embeddings"}, true));
  return t;
}

}  // namespace

std::span<const Family> hybrid_families() {
  static const std::array<Family, 8> families{{
      {"mamba", {}, mamba, false, R"({"vocab_size": 50280, "hidden_size": 768, "num_hidden_layers": 32})"},
      {"mamba2", {}, mamba2, false, R"({"vocab_size": 32768, "hidden_size": 4096, "num_hidden_layers": 64})"},
      {"jamba",
       {},
       jamba,
       false,
       R"({"vocab_size": 65536, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8})"},
      {"falcon_h1",
       {},
       falcon_h1,
       false,
       R"({"vocab_size": 128000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8})"},
      {"granitemoehybrid",
       {},
       granite_hybrid,
       false,
       R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32})"},
      {"qwen3_next",
       {},
       qwen3_next,
       false,
       R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256})"},
      {"minimax",
       {"minimax_text_01"},
       minimax,
       false,
       R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8})"},
      {"gemma3n", {"gemma3n_text"}, gemma3n, false, R"({"hidden_size": 2048, "num_hidden_layers": 35})"},
  }};
  return families;
}

}  // namespace shardsim
