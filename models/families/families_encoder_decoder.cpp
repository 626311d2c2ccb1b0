// SPDX-License-Identifier: Apache-2.0
// Encoder-decoders: T5 and Whisper. The encoder stands before the decoder; each decoder layer attends to its output, with as many tokens
// as the decoder has.
#include <algorithm>
#include <array>

#include "models/families/families.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t any_width = 1 << 22;

/// T5's feed-forward part: "relu", "gated-gelu", "gated-silu".
MlpSpec t5_feed_forward(ConfigReader& config) {
  const std::string kind = config.text({"feed_forward_proj"}, "relu");
  MlpSpec mlp{.width = config.size({"d_ff"}, any_width), .gated = kind.starts_with("gated-")};
  mlp.activation = kind.ends_with("relu") ? Activation::relu : kind.ends_with("silu") ? Activation::silu : Activation::gelu_composite;
  if (kind != "relu" && kind != "gelu" && kind != "gated-gelu" && kind != "gated-silu" && kind != "gated-relu")
    config.problem("feed_forward_proj", "feed_forward_proj '" + kind + "' is not known");
  return mlp;
}

/// Relative positions are learned in the first layer of a stack alone.
BlockSpec t5_block(ConfigReader& config, std::int64_t hidden, bool decoder, bool first) {
  BlockSpec block;
  block.hidden = hidden;
  AttentionSpec& a = block.attention;
  a.heads = a.kv_heads = config.size({"num_heads", "num_attention_heads"}, 1 << 14);
  a.head_dim = a.value_dim = config.size_or({"d_kv"}, 64, 1 << 14);
  a.rotary = false;
  a.causal = decoder;
  a.softmax_in_fp32 = true;
  if (first) {
    a.bias_rows = config.size_or({"relative_attention_num_buckets"}, 32, 1 << 16);
    a.bias_table = "layer.0.SelfAttention.relative_attention_bias.weight";
  }
  block.mlp = t5_feed_forward(config);
  BlockNames& n = block.names;
  n.attention = "layer.0.SelfAttention", n.q = "layer.0.SelfAttention.q", n.k = "layer.0.SelfAttention.k", n.v = "layer.0.SelfAttention.v",
  n.out = "layer.0.SelfAttention.o", n.attention_norm = "layer.0.layer_norm";
  if (decoder) {
    block.cross = a;
    block.cross->bias_rows = 0;
    block.cross->causal = false;
    n.cross = "layer.1.EncDecAttention", n.cross_q = "layer.1.EncDecAttention.q", n.cross_k = "layer.1.EncDecAttention.k",
    n.cross_v = "layer.1.EncDecAttention.v", n.cross_out = "layer.1.EncDecAttention.o";
    n.cross_norm = "layer.1.layer_norm", n.mlp_norm = "layer.2.layer_norm", n.mlp = "layer.2.DenseReluDense";
    n.gate = "layer.2.DenseReluDense.wi_0",
    n.up = std::get<MlpSpec>(block.mlp).gated ? "layer.2.DenseReluDense.wi_1" : "layer.2.DenseReluDense.wi",
    n.down = "layer.2.DenseReluDense.wo";
  } else {
    n.mlp_norm = "layer.1.layer_norm", n.mlp = "layer.1.DenseReluDense";
    n.gate = "layer.1.DenseReluDense.wi_0",
    n.up = std::get<MlpSpec>(block.mlp).gated ? "layer.1.DenseReluDense.wi_1" : "layer.1.DenseReluDense.wi",
    n.down = "layer.1.DenseReluDense.wo";
  }
  return block;
}

Transformer t5(ConfigReader& config) {
  Transformer t;
  const std::int64_t hidden = config.size({"d_model", "hidden_size"}), vocabulary = config.size({"vocab_size"}, 1 << 24);
  const std::int64_t encoder = config.size({"num_layers", "num_hidden_layers"}, 1 << 12);
  set_sizes(t, hidden, vocabulary);
  t.embedding.tokens = "shared";
  t.embedding.dropout = true;
  t.dense = t5_feed_forward(config);
  t.head.norm = NormKind::rms;
  t.head_is_set = true;
  const std::string name = config.architecture();
  if (name.ends_with("EncoderModel")) {
    t.blocks = "encoder.block";
    t.layers = encoder;
    t.variants = {t5_block(config, hidden, false, true), t5_block(config, hidden, false, false)};
    t.head.norm_name = "encoder.final_layer_norm";
    t.head.outputs = 0;
    t.loss = {.width = hidden, .classes = false};
  } else {
    t.layers = config.size_or({"num_decoder_layers"}, encoder, 1 << 12);
    t.blocks = "decoder.block";
    t.variants = {t5_block(config, hidden, true, true), t5_block(config, hidden, true, false)};
    EmbeddingSpec table = t.embedding;
    t.before.push_back({"shared", {"t5 encoder embedding", false, table, {}}, 0, false});
    t.before.push_back({"encoder.block.0", {"t5 encoder block 0", true, t5_block(config, hidden, false, true), {}}, 0, true});
    if (encoder > 1)
      t.before.push_back({"encoder.block", {"t5 encoder block", true, t5_block(config, hidden, false, false), {}}, encoder - 1, true, 1});
    HeadSpec end{.hidden = hidden, .norm = NormKind::rms, .norm_name = "encoder.final_layer_norm", .name = "encoder.output"};
    t.before.push_back({"encoder.output", {"t5 encoder norm", false, end, {}}, 0, false});
    t.embedding.tied_to = "shared.weight";
    t.embedding.tokens = "decoder.embed_tokens";
    t.head.norm_name = "decoder.final_layer_norm";
    t.warnings.emplace_back("encoder and decoder both see training.sequence_length tokens");
    const bool tied = config.flag({"tie_word_embeddings"}, true);
    if (name.ends_with("Model")) {
      t.head.outputs = 0;
      t.loss = {.width = hidden, .classes = false};
    } else if (tied) {
      t.head.tied_to = "shared.weight";
    }
  }
  t.block = t.variants.back();
  for (std::int64_t i = 0; i < t.layers; ++i) t.kinds.push_back(i == 0 ? 0U : 1U);
  return t;
}

BlockSpec whisper_block(ConfigReader& config, std::int64_t hidden, bool decoder) {
  BlockSpec block;
  block.hidden = hidden;
  AttentionSpec& a = block.attention;
  a.heads = a.kv_heads = decoder ? config.size({"decoder_attention_heads"}, 1 << 14) : config.size({"encoder_attention_heads"}, 1 << 14);
  a.head_dim = a.value_dim = std::max<std::int64_t>(1, hidden / a.heads);
  a.qkv_bias = a.out_bias = true;
  a.k_bias = a.rotary = a.softmax_in_fp32 = false;
  a.causal = decoder;
  block.norm = NormKind::layer;
  block.mlp = MlpSpec{.width = decoder ? config.size({"decoder_ffn_dim"}, any_width) : config.size({"encoder_ffn_dim"}, any_width),
                      .gated = false,
                      .bias = true,
                      .activation = Activation::gelu};
  BlockNames& n = block.names;
  n.out = "self_attn.out_proj", n.attention_norm = "self_attn_layer_norm", n.mlp_norm = "final_layer_norm", n.up = "fc1", n.down = "fc2";
  if (decoder) {
    block.cross = a;
    block.cross->causal = false;
  }
  return block;
}

/// Log-mel frames through two convolutions, the second with stride two, then positions.
InlineSpec whisper_front(std::int64_t bins, std::int64_t hidden, std::int64_t frames) {
  InlineSpec front;
  using Kind = InlineModule::Kind;
  front.modules.push_back({.kind = Kind::conv2d,
                           .name = "conv1",
                           .in = bins,
                           .out = hidden,
                           .kernel_height = 3,
                           .output_height = 2 * frames,
                           .output_width = 1,
                           .bias = true});
  front.modules.push_back({.kind = Kind::conv2d,
                           .name = "conv2",
                           .in = hidden,
                           .out = hidden,
                           .kernel_height = 3,
                           .output_height = frames,
                           .output_width = 1,
                           .bias = true});
  front.modules.push_back({.kind = Kind::shapes, .name = "embed_positions", .shapes = {{"weight", {frames, hidden}}}, .multiplies = false});
  return front;
}

Transformer whisper(ConfigReader& config) {
  Transformer t;
  const std::int64_t hidden = config.size({"d_model", "hidden_size"}), vocabulary = config.size({"vocab_size"}, 1 << 24),
                     frames = config.size_or({"max_source_positions"}, 1500, 1 << 20),
                     encoder = config.size({"encoder_layers", "num_hidden_layers"}, 1 << 12),
                     bins = config.size_or({"num_mel_bins"}, 80, 1 << 16);
  t.layers = config.size({"decoder_layers"}, 1 << 12);
  set_sizes(t, hidden, vocabulary);
  t.block = whisper_block(config, hidden, true);
  t.dense = std::get<MlpSpec>(t.block.mlp);
  t.blocks = "model.decoder.layers";
  t.embedding.tokens = "model.decoder.embed_tokens";
  t.embedding.positions = t.learned_positions = config.size_or({"max_target_positions"}, 448, 1 << 24);
  t.embedding.position_table = "model.decoder.embed_positions";
  t.embedding.dropout = true;
  t.head.norm = NormKind::layer;
  t.head.norm_name = "model.decoder.layer_norm";
  tie(t, config.flag({"tie_word_embeddings"}, true));
  t.before.push_back({"model.encoder", {"whisper front end", false, whisper_front(bins, hidden, frames), {}, 1}, 0, true});
  t.before.push_back(
      {"model.encoder.layers", {"whisper encoder block", true, whisper_block(config, hidden, false), {}, frames}, encoder, true});
  HeadSpec end{.hidden = hidden, .norm = NormKind::layer, .norm_name = "model.encoder.layer_norm", .name = "model.encoder.output"};
  t.before.push_back({"model.encoder.output", {"whisper encoder norm", false, end, {}, frames}, 0, false});
  t.features = frames * hidden;
  t.before_widest = static_cast<double>(2 * frames * std::max(hidden, bins) * 3);
  t.head_is_set = true;
  t.warnings.emplace_back("cross-attention sees as many frames as the decoder has tokens");
  return t;
}

}  // namespace

std::span<const Family> encoder_decoder_families() {
  static const std::array<Family, 2> families{{
      {"t5", {"mt5"}, t5, false, R"({"vocab_size": 32128, "d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8})"},
      {"whisper",
       {},
       whisper,
       false,
       R"({"vocab_size": 51865, "d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6, "decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536})"},
  }};
  return families;
}

}  // namespace shardsim
