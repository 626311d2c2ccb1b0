// SPDX-License-Identifier: Apache-2.0
// Encoders: BERT, RoBERTa, DistilBERT and ModernBERT with the heads that `architectures` names, ViT with its classifier.
#include <algorithm>
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

/// BERT's heads by the class in `architectures`. BertForMaskedLM stands in the config.json of every BERT checkpoint whatever is trained
/// from it: it is counted as BertModel with its pooler, as the published counts are, and said.
void bert_head(ConfigReader& config, Transformer& t) {
  const std::string name = config.architecture();
  HeadSpec& h = t.head;
  t.head_is_set = true;
  const auto pooled = [&](std::int64_t outputs) {
    h.dense = "pooler.dense";
    h.dense_activation = Activation::tanh;
    h.name = "classifier";
    h.bias = true;
    h.tanh = false;
    h.outputs = t.loss.width = outputs;
    t.loss.classes = true;
  };
  if (name.ends_with("ForSequenceClassification") || name.ends_with("ForMultipleChoice"))
    return pooled(name.ends_with("ForMultipleChoice") ? 1 : labels_of(config));
  if (name.ends_with("ForTokenClassification") || name.ends_with("ForQuestionAnswering")) {
    h = HeadSpec{.hidden = h.hidden,
                 .name = name.ends_with("Answering") ? "qa_outputs" : "classifier",
                 .outputs = name.ends_with("Answering") ? 2 : labels_of(config),
                 .bias = true};
    t.loss = {.width = h.outputs};
    return;
  }
  if (name == "BertForPreTraining") {  // masked LM and next-sentence prediction: the pooler is part of it
    const std::int64_t vocabulary = t.embedding.vocabulary;
    h = HeadSpec{.hidden = h.hidden,
                 .name = "cls.predictions.decoder",
                 .outputs = vocabulary,
                 .bias = true,
                 .tied_to = std::string(t.embedding.tokens) + ".weight"};
    h.dense = "cls.predictions.transform.dense", h.dense_norm = NormKind::layer, h.dense_norm_name = "cls.predictions.transform.LayerNorm",
    h.bias_name = "cls.predictions.bias";
    h.beside = "cls.seq_relationship", h.beside_outputs = 2;
    h.pooler = "pooler.dense";
    t.loss = {.width = vocabulary};
    return;
  }
  if (name.ends_with("ForMaskedLM"))
    t.warnings.push_back("BertForMaskedLM: BertModel with its pooler is counted, as published; its masked-LM head would add " +
                         std::to_string(2 * h.hidden + t.embedding.vocabulary) +
                         " parameters and logits over the vocabulary (architectures: [BertForPreTraining] counts them)");
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
  bert_head(config, t);
  return t;
}

/// BERT with positions from 2 on; classifiers have a dense layer of their own and no pooler.
Transformer roberta(ConfigReader& config) {
  Transformer t = bert(config);
  t.warnings.clear();
  t.learned_positions = std::max<std::int64_t>(1, t.embedding.positions - 2);
  t.registration.clear();
  const std::string name = config.architecture();
  HeadSpec& h = t.head;
  const std::int64_t vocabulary = t.embedding.vocabulary;
  if (name.ends_with("ForMaskedLM") || name.ends_with("ForCausalLM")) {
    h = HeadSpec{.hidden = h.hidden,
                 .name = "lm_head.decoder",
                 .outputs = vocabulary,
                 .bias = true,
                 .tied_to = std::string(t.embedding.tokens) + ".weight"};
    h.dense = "lm_head.dense", h.dense_norm = NormKind::layer, h.dense_norm_name = "lm_head.layer_norm", h.bias_name = "lm_head.bias";
    t.loss = {.width = vocabulary};
  } else if (name.ends_with("ForSequenceClassification")) {
    h.dense = "classifier.dense";
    h.name = "classifier.out_proj";
  }
  return t;
}

/// BERT's layer without types and pooler.
Transformer distilbert(ConfigReader& config) {
  Transformer t;
  const std::int64_t hidden = config.size({"dim", "hidden_size"}), heads = config.size({"n_heads", "num_attention_heads"}, 1 << 14);
  t.layers = config.size({"n_layers", "num_hidden_layers"}, 1 << 12);
  read_heads(config, t.block.attention, hidden, heads, heads);
  set_sizes(t, hidden, config.size({"vocab_size"}, 1 << 24));
  t.dense = {.width = config.size({"hidden_dim"}, 1 << 22),
             .gated = false,
             .bias = true,
             .activation = config.activation({"activation"}, "gelu", t.warnings)};
  t.block.mlp = t.dense;
  t.block.norm = NormKind::layer;
  AttentionSpec& a = t.block.attention;
  a.qkv_bias = a.out_bias = true;
  a.rotary = a.causal = a.softmax_in_fp32 = false;
  t.block.residual = Residual::post;
  EmbeddingSpec& e = t.embedding;
  e.tokens = "embeddings.word_embeddings";
  e.positions = t.learned_positions = config.size_or({"max_position_embeddings"}, 512, 1 << 24);
  e.position_table = "embeddings.position_embeddings";
  e.norm = NormKind::layer, e.norm_name = "embeddings.LayerNorm", e.dropout = true;
  t.blocks = "transformer.layer";
  BlockNames& n = t.block.names;
  n.attention = "attention", n.mlp = "ffn", n.q = "attention.q_lin", n.k = "attention.k_lin", n.v = "attention.v_lin",
  n.out = "attention.out_lin";
  n.attention_norm = "sa_layer_norm", n.mlp_norm = "output_layer_norm", n.up = "ffn.lin1", n.down = "ffn.lin2";
  t.head_is_set = true;
  const std::string name = config.architecture();
  HeadSpec& h = t.head;
  if (name.ends_with("ForMaskedLM")) {
    h.dense = "vocab_transform", h.dense_norm = NormKind::layer, h.dense_norm_name = "vocab_layer_norm";
    h.name = "vocab_projector", h.bias = true, h.bias_name = "vocab_projector.bias";
    tie(t, true);
  } else if (name.ends_with("ForSequenceClassification")) {
    h.over = HeadSpec::Over::first_token;
    h.dense = "pre_classifier", h.dense_activation = Activation::relu;
    h.name = "classifier", h.bias = true, h.outputs = t.loss.width = labels_of(config);
    t.loss.over_tokens = false;
  } else if (name.ends_with("ForTokenClassification") || name.ends_with("ForQuestionAnswering")) {
    h.name = "classifier", h.bias = true, h.outputs = t.loss.width = name.ends_with("Answering") ? 2 : labels_of(config);
  } else {
    h.outputs = 0;
    t.loss = {.width = hidden, .classes = false};
  }
  return t;
}

/// ModernBERT: fused projections, gates, norms without biases (the first layer has none before attention), two windows of three layers.
Transformer modernbert(ConfigReader& config) {
  Transformer t;
  const std::int64_t hidden = config.size({"hidden_size"}), heads = config.size({"num_attention_heads"}, 1 << 14),
                     vocabulary = config.size({"vocab_size"}, 1 << 24);
  t.layers = config.size({"num_hidden_layers"}, 1 << 12);
  read_heads(config, t.block.attention, hidden, heads, heads);
  set_sizes(t, hidden, vocabulary);
  t.dense = {.width = config.size({"intermediate_size"}, 1 << 22),
             .fused_gate_up = true,
             .bias = config.flag({"mlp_bias"}, false),
             .activation = config.activation({"hidden_activation"}, "gelu", t.warnings)};
  t.block.mlp = t.dense;
  const NormKind kind = config.flag({"norm_bias"}, false) ? NormKind::layer : NormKind::layer_without_bias;
  t.block.norm = kind;
  AttentionSpec& a = t.block.attention;
  a.projection = AttentionSpec::Projection::fused;
  a.qkv_bias = a.out_bias = config.flag({"attention_bias"}, false);
  a.causal = a.softmax_in_fp32 = false;
  EmbeddingSpec& e = t.embedding;
  e.tokens = "model.embeddings.tok_embeddings";
  e.norm = kind, e.norm_name = "model.embeddings.norm";
  BlockNames& n = t.block.names;
  n.attention = "attn", n.qkv = "attn.Wqkv", n.out = "attn.Wo", n.attention_norm = "attn_norm", n.mlp_norm = "mlp_norm",
  n.gate_up = "mlp.Wi", n.down = "mlp.Wo";
  const std::int64_t period = config.size_or({"global_attn_every_n_layers"}, 3, 1 << 12),
                     window = config.size_or({"local_attention"}, 128, std::int64_t{1} << 40);
  for (const bool first : {false, true})
    for (const bool global : {false, true}) {
      BlockSpec block = t.block;
      if (first) block.names.attention_norm = "";
      block.attention.window = global ? 0 : window;
      t.variants.push_back(std::move(block));
    }
  for (std::int64_t i = 0; i < t.layers; ++i) t.kinds.push_back((i == 0 ? 2U : 0U) + (i % period == 0 ? 1U : 0U));
  t.head_is_set = true;
  HeadSpec& h = t.head;
  h.norm = kind, h.norm_name = "model.final_norm";
  const std::string name = config.architecture();
  const auto dense = [&] {
    h.dense = "head.dense", h.dense_bias = config.flag({"classifier_bias"}, false), h.dense_norm = kind, h.dense_norm_name = "head.norm";
  };
  if (name.ends_with("ForMaskedLM")) {
    dense();
    h.name = "decoder", h.bias = config.flag({"decoder_bias"}, true);
    tie(t, config.flag({"tie_word_embeddings"}, true));
  } else if (name.ends_with("ForSequenceClassification") || name.ends_with("ForTokenClassification")) {
    dense();
    h.name = "classifier", h.bias = true, h.outputs = t.loss.width = labels_of(config);
    t.loss.over_tokens = name.ends_with("ForTokenClassification");
  } else {
    h.outputs = 0;
    t.loss = {.width = hidden, .classes = false};
  }
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
  t.head_is_set = true;
  return t;
}

}  // namespace

std::span<const Family> encoder_families() {
  constexpr std::string_view base = R"({"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12})";
  static const std::array<Family, 5> families{{
      {"bert", {}, bert, false, base},
      {"roberta",
       {"xlm-roberta", "camembert"},
       roberta,
       false,
       R"({"vocab_size": 50265, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12})"},
      {"distilbert", {}, distilbert, false, R"({"vocab_size": 30522, "dim": 768, "hidden_dim": 3072, "n_layers": 6, "n_heads": 12})"},
      {"modernbert",
       {},
       modernbert,
       false,
       R"({"vocab_size": 50368, "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22, "num_attention_heads": 12})"},
      {"vit", {}, vit, false, R"({"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12})"},
  }};
  return families;
}

}  // namespace shardsim
