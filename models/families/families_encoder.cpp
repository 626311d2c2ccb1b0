// SPDX-License-Identifier: Apache-2.0
// Encoders: BERT (BertModel with its pooler, no masked-LM head) and ViT (with its classifier).
#include <array>
#include <utility>

#include "models/families/families.hpp"

namespace shardsim {
namespace {

Transformer encoder_like(ConfigReader& config) {
  Transformer t;
  const std::int64_t hidden = config.size({"hidden_size"});
  t.layers = config.size({"num_hidden_layers"}, 1 << 12);
  const std::int64_t heads = config.size({"num_attention_heads"}, 1 << 14);
  read_heads(config, t.block.attention, hidden, heads, heads);
  set_sizes(t, hidden, 0);
  t.dense = {.width = config.size_or({"intermediate_size"}, 4 * hidden, 1 << 22),
             .gated = false,
             .bias = true,
             .activation = config.activation({"hidden_act"}, "gelu", t.warnings)};
  t.block.mlp = t.dense;
  t.block.norm = NormKind::layer;
  AttentionSpec& a = t.block.attention;
  a.qkv_bias = a.out_bias = true;
  a.rotary = a.causal = a.softmax_in_fp32 = false;
  t.head.over = HeadSpec::Over::first_token;
  t.loss.over_tokens = false;
  return t;
}

Transformer bert(ConfigReader& config) {
  Transformer t = encoder_like(config);
  EmbeddingSpec& e = t.embedding;
  e.vocabulary = config.size({"vocab_size"}, 1 << 24);
  e.tokens = "embeddings.word_embeddings";
  e.positions = t.learned_positions = config.size_or({"max_position_embeddings"}, 512, 1 << 24);
  e.position_table = "embeddings.position_embeddings";
  e.types = config.size_or({"type_vocab_size"}, 2, 1 << 20);
  e.type_table = "embeddings.token_type_embeddings";
  e.norm = NormKind::layer;
  e.norm_name = "embeddings.LayerNorm";
  e.dropout = true;
  t.registration = {"embeddings.word_embeddings",
                    "embeddings.position_embeddings",
                    "embeddings.token_type_embeddings",
                    "embeddings",
                    "encoder",
                    "pooler"};
  t.blocks = "encoder.layer";
  t.block.residual = Residual::post;
  BlockNames& n = t.block.names;
  n.attention = "attention.self", n.mlp = "intermediate";
  n.q = "attention.self.query", n.k = "attention.self.key", n.v = "attention.self.value", n.out = "attention.output.dense";
  n.attention_norm = "attention.output.LayerNorm", n.mlp_norm = "output.LayerNorm";
  n.up = "intermediate.dense", n.down = "output.dense";
  t.head.name = "pooler.dense";
  t.head.bias = t.head.tanh = true;
  t.head.outputs = t.loss.width = e.hidden;
  t.loss.classes = false;
  return t;
}

Transformer vit(ConfigReader& config) {
  Transformer t = encoder_like(config);
  t.vision = true;
  PatchSpec& p = t.patches;
  p.hidden = t.block.hidden;
  p.image = config.size_or({"image_size"}, 224, 1 << 16);
  p.patch = config.size_or({"patch_size"}, 16, 1 << 16);
  p.channels = config.size_or({"num_channels"}, 3, 1 << 12);
  if (p.image < p.patch) config.problem("patch_size", "a patch of " + std::to_string(p.patch) + " pixels is larger than the image");
  t.blocks = "vit.encoder.layer";
  t.block.attention.qkv_bias = config.flag({"qkv_bias"}, true);
  BlockNames& n = t.block.names;
  n.attention = "attention.attention", n.mlp = "intermediate";
  n.q = "attention.attention.query", n.k = "attention.attention.key", n.v = "attention.attention.value", n.out = "attention.output.dense";
  n.attention_norm = "layernorm_before", n.mlp_norm = "layernorm_after";
  n.up = "intermediate.dense", n.down = "output.dense";
  t.block_registration = {"attention", "intermediate", "output", "layernorm_before", "layernorm_after"};
  const std::int64_t labels = config.entries("id2label");
  t.head.norm = NormKind::layer;
  t.head.norm_name = "vit.layernorm";
  t.head.name = "classifier";
  t.head.bias = true;
  t.head.outputs = t.loss.width = config.size_or({"num_labels"}, labels > 0 ? labels : 1000, 1 << 24);
  return t;
}

}  // namespace

std::span<const Family> encoder_families() {
  static const std::array<Family, 2> families{{{"bert", {}, bert}, {"vit", {}, vit}}};
  return families;
}

}  // namespace shardsim
