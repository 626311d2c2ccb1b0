// SPDX-License-Identifier: Apache-2.0
// Names, shapes and registration order, written down from the modeling files of transformers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models_support.hpp"

namespace shardsim::testing {
namespace {

using Lines = std::vector<std::string>;

Lines parameters(const std::string& text) {
  Training training;
  training.sequence_length = 4;
  const auto model = model_of(config(text), training);
  Lines lines;
  for (const Parameter& p : *model->parameters) lines.push_back(fmt::format("{} {}", p.name, fmt::join(p.shape, "x")));
  return lines;
}

Lines expand(const std::string& prefix, const Lines& names) {
  Lines lines;
  for (const std::string& name : names) lines.push_back(prefix + name);
  return lines;
}

Lines operator+(Lines first, const Lines& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// A function, because the macro would cut braces at their commas.
void expect(const Lines& actual, const Lines& expected) { EXPECT_EQ(actual, expected); }

const std::string sizes = "vocab_size: 50, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 4, intermediate_size: 12";

TEST(Registration, Llama) {
  expect(parameters("{model_type: llama, " + sizes + ", num_key_value_heads: 2, head_dim: 3, attention_bias: true}"),
         Lines{"model.embed_tokens.weight 50x8"} +
             expand("model.layers.0.",
                    {"self_attn.q_proj.weight 12x8", "self_attn.q_proj.bias 12", "self_attn.k_proj.weight 6x8", "self_attn.k_proj.bias 6",
                     "self_attn.v_proj.weight 6x8", "self_attn.v_proj.bias 6", "self_attn.o_proj.weight 8x12", "self_attn.o_proj.bias 8",
                     "mlp.gate_proj.weight 12x8", "mlp.up_proj.weight 12x8", "mlp.down_proj.weight 8x12", "input_layernorm.weight 8",
                     "post_attention_layernorm.weight 8"}) +
             Lines{"model.norm.weight 8", "lm_head.weight 50x8"});
}

TEST(Registration, Qwen3PutsHeadNormsAfterTheProjections) {
  expect(parameters("{model_type: qwen3, " + sizes + ", head_dim: 4, num_key_value_heads: null, tie_word_embeddings: true}"),
         Lines{"model.embed_tokens.weight 50x8"} +
             expand("model.layers.0.", {"self_attn.q_proj.weight 16x8", "self_attn.k_proj.weight 16x8", "self_attn.v_proj.weight 16x8",
                                        "self_attn.o_proj.weight 8x16", "self_attn.q_norm.weight 4", "self_attn.k_norm.weight 4",
                                        "mlp.gate_proj.weight 12x8", "mlp.up_proj.weight 12x8", "mlp.down_proj.weight 8x12",
                                        "input_layernorm.weight 8", "post_attention_layernorm.weight 8"}) +
             Lines{"model.norm.weight 8"});
}

TEST(Registration, Gemma2HasFourNorms) {
  const auto lines = parameters("{model_type: gemma2, " + sizes + ", num_key_value_heads: 2, head_dim: 2}");
  expect((Lines{lines.begin() + 8, lines.end()}),
         expand("model.layers.0.", {"input_layernorm.weight 8", "post_attention_layernorm.weight 8", "pre_feedforward_layernorm.weight 8",
                                    "post_feedforward_layernorm.weight 8"}) +
             Lines{"model.norm.weight 8"});
}

TEST(Registration, Olmo2NormsTheBranches) {
  const auto lines = parameters("{model_type: olmo2, " + sizes + ", num_key_value_heads: 2}");
  expect((Lines{lines.begin() + 5, lines.end()}),
         expand("model.layers.0.",
                {"self_attn.q_norm.weight 8", "self_attn.k_norm.weight 4", "mlp.gate_proj.weight 12x8", "mlp.up_proj.weight 12x8",
                 "mlp.down_proj.weight 8x12", "post_attention_layernorm.weight 8", "post_feedforward_layernorm.weight 8"}) +
             Lines{"model.norm.weight 8", "lm_head.weight 50x8"});
}

TEST(Registration, Phi3FusesAndRegistersTheOutputFirst) {
  const auto lines = parameters("{model_type: phi3, " + sizes + ", num_key_value_heads: 2}");
  expect((Lines{lines.begin() + 1, lines.begin() + 5}),
         expand("model.layers.0.", {"self_attn.o_proj.weight 8x8", "self_attn.qkv_proj.weight 16x8", "mlp.gate_up_proj.weight 24x8",
                                    "mlp.down_proj.weight 8x12"}));
}

TEST(Registration, Gpt2StoresItsWeightsTransposed) {
  expect(parameters("{model_type: gpt2, vocab_size: 50, n_positions: 16, n_embd: 8, n_layer: 1, n_head: 2}"),
         (Lines{"transformer.wte.weight 50x8", "transformer.wpe.weight 16x8"}) +
             expand("transformer.h.0.", {"ln_1.weight 8", "ln_1.bias 8", "attn.c_attn.weight 8x24", "attn.c_attn.bias 24",
                                         "attn.c_proj.weight 8x8", "attn.c_proj.bias 8", "ln_2.weight 8", "ln_2.bias 8",
                                         "mlp.c_fc.weight 8x32", "mlp.c_fc.bias 32", "mlp.c_proj.weight 32x8", "mlp.c_proj.bias 8"}) +
             Lines{"transformer.ln_f.weight 8", "transformer.ln_f.bias 8"});
}

TEST(Registration, GptJHasOneNormAndABiasedHead) {
  expect(parameters("{model_type: gptj, vocab_size: 50, n_embd: 8, n_layer: 1, n_head: 2}"),
         Lines{"transformer.wte.weight 50x8"} +
             expand("transformer.h.0.", {"ln_1.weight 8", "ln_1.bias 8", "attn.k_proj.weight 8x8", "attn.v_proj.weight 8x8",
                                         "attn.q_proj.weight 8x8", "attn.out_proj.weight 8x8", "mlp.fc_in.weight 32x8", "mlp.fc_in.bias 32",
                                         "mlp.fc_out.weight 8x32", "mlp.fc_out.bias 8"}) +
             Lines{"transformer.ln_f.weight 8", "transformer.ln_f.bias 8", "lm_head.weight 50x8", "lm_head.bias 50"});
}

TEST(Registration, NeoXRegistersItsNormsFirst) {
  const auto lines = parameters("{model_type: gpt_neox, " + sizes + "}");
  expect((Lines{lines.begin(), lines.begin() + 6}),
         Lines{"gpt_neox.embed_in.weight 50x8"} +
             expand("gpt_neox.layers.0.", {"input_layernorm.weight 8", "input_layernorm.bias 8", "post_attention_layernorm.weight 8",
                                           "post_attention_layernorm.bias 8", "attention.query_key_value.weight 24x8"}));
  EXPECT_EQ(lines.back(), "embed_out.weight 50x8");
}

TEST(Registration, OptRegistersItsFinalNormBeforeItsLayers) {
  expect(parameters("{model_type: opt, vocab_size: 50, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, ffn_dim: 12, "
                    "max_position_embeddings: 16}"),
         (Lines{"model.decoder.embed_tokens.weight 50x8", "model.decoder.embed_positions.weight 18x8",
                "model.decoder.final_layer_norm.weight 8", "model.decoder.final_layer_norm.bias 8"}) +
             expand("model.decoder.layers.0.",
                    {"self_attn.k_proj.weight 8x8", "self_attn.k_proj.bias 8", "self_attn.v_proj.weight 8x8", "self_attn.v_proj.bias 8",
                     "self_attn.q_proj.weight 8x8", "self_attn.q_proj.bias 8", "self_attn.out_proj.weight 8x8", "self_attn.out_proj.bias 8",
                     "self_attn_layer_norm.weight 8", "self_attn_layer_norm.bias 8", "fc1.weight 12x8", "fc1.bias 12", "fc2.weight 8x12",
                     "fc2.bias 8", "final_layer_norm.weight 8", "final_layer_norm.bias 8"}));
}

// OPT-350M: embeddings of 512 projected to 1024 and back, norms after the branches, no final norm. Published: 331,196,416.
TEST(Registration, Opt350m) {
  const auto model =
      model_of(config("{model_type: opt, vocab_size: 50272, hidden_size: 1024, num_hidden_layers: 24, num_attention_heads: 16, "
                      "ffn_dim: 4096, word_embed_proj_dim: 512, do_layer_norm_before: false}"));
  EXPECT_EQ(model->total().value(), 331196416);
  EXPECT_EQ((*model->parameters)[2].name, "model.decoder.project_out.weight");
  EXPECT_EQ((*model->parameters)[3].name, "model.decoder.project_in.weight");
}

// DeepSpeed's buckets of 5e8 elements over OPT-1.3B, flushed before they would overflow: first all tensors with weight decay in
// registration order, then those without.
TEST(Registration, OptFillsDeepSpeedsBuckets) {
  const auto model = model_of(*preset("opt-1.3b"));
  std::vector<const Parameter*> order;
  for (const bool decay : {true, false})
    for (const Parameter& p : *model->parameters)
      if (p.matrix() == decay) order.push_back(&p);
  std::vector<std::pair<std::int64_t, int>> buckets(1);
  for (const Parameter* p : order) {
    if (buckets.back().first + p->elements.value() > 500000000) buckets.emplace_back();
    buckets.back().first += p->elements.value();
    ++buckets.back().second;
  }
  EXPECT_EQ(buckets, (std::vector<std::pair<std::int64_t, int>>{{493031424, 49}, {486539264, 59}, {336187392, 280}}));
}

TEST(Registration, FalconOldAndNew) {
  const std::string common = "model_type: falcon, vocab_size: 50, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 4";
  expect(parameters("{" + common + "}"),
         Lines{"transformer.word_embeddings.weight 50x8"} +
             expand("transformer.h.0.",
                    {"self_attention.query_key_value.weight 12x8", "self_attention.dense.weight 8x8", "mlp.dense_h_to_4h.weight 32x8",
                     "mlp.dense_4h_to_h.weight 8x32", "input_layernorm.weight 8", "input_layernorm.bias 8"}) +
             Lines{"transformer.ln_f.weight 8", "transformer.ln_f.bias 8"});
  const auto lines = parameters("{" + common + ", new_decoder_architecture: true, num_kv_heads: 2}");
  EXPECT_EQ(lines[1], "transformer.h.0.self_attention.query_key_value.weight 16x8");
  expect((Lines{lines.begin() + 5, lines.begin() + 9}),
         expand("transformer.h.0.", {"ln_attn.weight 8", "ln_attn.bias 8", "ln_mlp.weight 8", "ln_mlp.bias 8"}));
  const auto sequential = parameters("{" + common + ", parallel_attn: false, multi_query: false, bias: true}");
  EXPECT_EQ(sequential.size(), 1u + 12 + 2);
}

TEST(Registration, MptWithoutAndWithBiases) {
  const std::string common = "model_type: mpt, vocab_size: 50, d_model: 8, n_layers: 1, n_heads: 2, max_seq_len: 16";
  expect(parameters("{" + common + "}"),
         Lines{"transformer.wte.weight 50x8"} +
             expand("transformer.blocks.0.", {"norm_1.weight 8", "attn.Wqkv.weight 24x8", "attn.out_proj.weight 8x8", "norm_2.weight 8",
                                              "ffn.up_proj.weight 32x8", "ffn.down_proj.weight 8x32"}) +
             Lines{"transformer.norm_f.weight 8"});
  // llm-foundry's count: V d + s d + L (12 d^2 + 13 d) + 2 d
  const auto model =
      model_of(config("{model_type: mpt, vocab_size: 50368, d_model: 4096, n_layers: 32, n_heads: 32, max_seq_len: 2048, "
                      "no_bias: false, learned_pos_emb: true, attn_config: {alibi: false}}"));
  EXPECT_EQ(model->total().value(), 6658859008);
}

TEST(Registration, MixtralOrdersItsExpertsByName) {
  const auto lines = parameters("{model_type: mixtral, " + sizes + ", num_local_experts: 2}");
  expect((Lines{lines.begin() + 5, lines.begin() + 12}),
         expand("model.layers.0.block_sparse_moe.",
                {"gate.weight 2x8", "experts.0.w1.weight 12x8", "experts.0.w2.weight 8x12", "experts.0.w3.weight 12x8",
                 "experts.1.w1.weight 12x8", "experts.1.w2.weight 8x12", "experts.1.w3.weight 12x8"}));
  const auto model = model_of(config("{model_type: mixtral, " + sizes + ", num_local_experts: 2}"));
  EXPECT_EQ(std::count_if(model->parameters->begin(), model->parameters->end(), [](const Parameter& p) { return p.routed_expert; }), 6);
}

TEST(Registration, Qwen2MoeHasAGatedSharedExpert) {
  const auto lines = parameters("{model_type: qwen2_moe, " + sizes +
                                ", num_experts: 1, num_experts_per_tok: 1, moe_intermediate_size: 6, shared_expert_intermediate_size: 10}");
  expect((Lines{lines.begin() + 8, lines.begin() + 16}),
         expand("model.layers.0.mlp.",
                {"gate.weight 1x8", "experts.0.gate_proj.weight 6x8", "experts.0.up_proj.weight 6x8", "experts.0.down_proj.weight 8x6",
                 "shared_expert.gate_proj.weight 10x8", "shared_expert.up_proj.weight 10x8", "shared_expert.down_proj.weight 8x10",
                 "shared_expert_gate.weight 1x8"}));
}

TEST(Registration, DeepSeekV3) {
  const auto lines = parameters(
      "{model_type: deepseek_v3, vocab_size: 50, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 12, "
      "moe_intermediate_size: 6, n_routed_experts: 2, n_shared_experts: 2, num_experts_per_tok: 1, first_k_dense_replace: 1, "
      "q_lora_rank: 5, kv_lora_rank: 3, qk_nope_head_dim: 4, qk_rope_head_dim: 2, v_head_dim: 7}");
  const Lines attention{"self_attn.q_a_proj.weight 5x8",     "self_attn.q_a_layernorm.weight 5",
                        "self_attn.q_b_proj.weight 24x5",    "self_attn.kv_a_proj_with_mqa.weight 5x8",
                        "self_attn.kv_a_layernorm.weight 3", "self_attn.kv_b_proj.weight 44x3",
                        "self_attn.o_proj.weight 8x28"};
  const Lines norms{"input_layernorm.weight 8", "post_attention_layernorm.weight 8"};
  expect(lines,
         Lines{"model.embed_tokens.weight 50x8"} +
             expand("model.layers.0.",
                    attention + Lines{"mlp.gate_proj.weight 12x8", "mlp.up_proj.weight 12x8", "mlp.down_proj.weight 8x12"} + norms) +
             expand("model.layers.1.",
                    attention +
                        expand("mlp.", {"experts.0.gate_proj.weight 6x8", "experts.0.up_proj.weight 6x8", "experts.0.down_proj.weight 8x6",
                                        "experts.1.gate_proj.weight 6x8", "experts.1.up_proj.weight 6x8", "experts.1.down_proj.weight 8x6",
                                        "gate.weight 2x8", "gate.e_score_correction_bias 2", "shared_experts.gate_proj.weight 12x8",
                                        "shared_experts.up_proj.weight 12x8", "shared_experts.down_proj.weight 8x12"}) +
                        norms) +
             Lines{"model.norm.weight 8", "lm_head.weight 50x8"});
}

TEST(Registration, BertAndVit) {
  const auto bert = parameters("{model_type: bert, " + sizes + ", max_position_embeddings: 16}");
  expect((Lines{bert.begin(), bert.begin() + 6}),
         (Lines{"embeddings.word_embeddings.weight 50x8", "embeddings.position_embeddings.weight 16x8",
                "embeddings.token_type_embeddings.weight 2x8", "embeddings.LayerNorm.weight 8", "embeddings.LayerNorm.bias 8",
                "encoder.layer.0.attention.self.query.weight 8x8"}));
  EXPECT_EQ(bert[bert.size() - 2], "pooler.dense.weight 8x8");
  const auto vit = parameters(
      "{model_type: vit, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 12, "
      "image_size: 8, patch_size: 4, num_channels: 1, id2label: {\"0\": cat, \"1\": dog}}");
  expect((Lines{vit.begin(), vit.begin() + 5}),
         (Lines{"vit.embeddings.cls_token 1x1x8", "vit.embeddings.position_embeddings 1x5x8",
                "vit.embeddings.patch_embeddings.projection.weight 8x1x4x4", "vit.embeddings.patch_embeddings.projection.bias 8",
                "vit.encoder.layer.0.attention.attention.query.weight 8x8"}));
  EXPECT_EQ(vit.back(), "classifier.bias 2");
}

TEST(Registration, GradientsArriveAgainstTheOrderOfUse) {
  const auto model = model_of(config("{model_type: llama, " + sizes + ", tie_word_embeddings: true}"));
  Lines arrived;
  for (auto layer = model->layers->rbegin(); layer != model->layers->rend(); ++layer)
    for (const std::int32_t i : model->type_of(*layer).arrival)
      arrived.push_back(model->at(layer->parameters[static_cast<std::size_t>(i)]).name);
  expect(arrived, Lines{"model.norm.weight"} +
                      expand("model.layers.0.", {"mlp.down_proj.weight", "mlp.up_proj.weight", "mlp.gate_proj.weight",
                                                 "post_attention_layernorm.weight", "self_attn.o_proj.weight", "self_attn.v_proj.weight",
                                                 "self_attn.k_proj.weight", "self_attn.q_proj.weight", "input_layernorm.weight"}) +
                      Lines{"model.embed_tokens.weight"});  // tied: final where it is used first
  ASSERT_EQ(model->tied.size(), 1u);
  EXPECT_EQ(model->at(model->tied.front()).name, "model.embed_tokens.weight");
}

}  // namespace
}  // namespace shardsim::testing
