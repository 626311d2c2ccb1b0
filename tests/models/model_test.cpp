// SPDX-License-Identifier: Apache-2.0
// FLOPs, what trains, and what is refused.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "models_support.hpp"  // gtest before rapidcheck/gtest.h

namespace shardsim::testing {
namespace {

std::string refused(const std::string& preset_name, const Training& training, const Trainable& trainable = {}) {
  const auto model = build_model(*preset(preset_name), training, trainable);
  return model ? "accepted" : model.error().text();
}

double hardware_flops(const Model& model) {
  Flops sum;
  for (const Layer& layer : *model.layers)
    for (const Module& m : model.type_of(layer).modules) sum += m.forward.flops() + m.backward_input.flops() + m.backward_weight.flops();
  return sum.base();
}

// 6 N T + 12 L H Q s T with N the matrices that multiply: all but the embedding and the norms.
TEST(ModelFlops, AreSixPerParameterAndTokenPlusAttention) {
  Training training;
  training.sequence_length = 8192;
  const auto model = model_of(*preset("llama-3-8b"), training);
  const double n = 8030261248.0 - 128256.0 * 4096 - 65.0 * 4096, t = 8192;
  EXPECT_DOUBLE_EQ(model->model_flops_per_micro_batch.base(), 6 * n * t + 12.0 * 32 * 4096 * 8192 * t);
  EXPECT_DOUBLE_EQ(hardware_flops(*model), model->model_flops_per_micro_batch.base());
}

TEST(ModelFlops, PlainAttentionCountsAsMuchAsFlash) {
  Training training;
  const double flash = model_of(*preset("gpt2"),
                                [&] {
                                  training.sequence_length = 1024;
                                  return training;
                                }())
                           ->model_flops_per_micro_batch.base();
  training.attention = AttentionKind::plain;
  EXPECT_DOUBLE_EQ(model_of(*preset("gpt2"), training)->model_flops_per_micro_batch.base(), flash);
}

// Mixtral: two of eight experts a token. Per layer: attention 2 * 4096^2 + 2 * 4096 * 1024, router 8 * 4096, experts 2 * 3 * 4096 * 14336.
TEST(ModelFlops, CountActiveExpertsOnly) {
  const auto model = model_of(*preset("mixtral-8x7b"));
  const double layer = 2.0 * 4096 * 4096 + 2.0 * 4096 * 1024 + 8.0 * 4096 + 2.0 * 3 * 4096 * 14336;
  const double n = 32 * layer + 32000.0 * 4096, t = 2048;
  EXPECT_DOUBLE_EQ(model->model_flops_per_micro_batch.base(), 6 * n * t + 12.0 * 32 * 4096 * 2048 * t);
}

TEST(ModelFlops, ExpertsShareUnevenTokensExactly) {
  Training training;
  training.sequence_length = 7;  // 14 rows over 8 experts: six get two, two get one
  const auto model = model_of(*preset("mixtral-8x7b"), training);
  for (const Module& m : first_block(*model).modules) {
    if (!m.routed_experts) continue;
    EXPECT_DOUBLE_EQ(m.forward.flops().base(), 14 * 3 * 2.0 * 4096 * 14336);
    EXPECT_EQ(m.forward.products.front().count, 6);
    EXPECT_EQ(m.forward.products.front().m, 2);
  }
}

// Causal: (s + 1) / 2s of the scores; a window w: (w s - w (w - 1) / 2) / s^2; backward does five products where four are counted.
TEST(FlashAttention, DensityFollowsMaskAndWindow) {
  Training training;
  training.sequence_length = 8192;
  const auto model = model_of(*preset("gemma-2-2b"), training);
  std::vector<double> forward, backward;
  for (const LayerType& type : model->types)
    for (const Module& m : type.modules)
      for (const FlashAttention& a : m.forward.attention) {
        forward.push_back(a.density);
        backward.push_back(m.backward_input.attention.front().density);
      }
  const double window = (4096.0 * 8192 - 4096.0 * 4095 / 2) / (8192.0 * 8192), full = 8193.0 / 16384;
  ASSERT_EQ(forward.size(), 2u);
  EXPECT_DOUBLE_EQ(forward[0], window);
  EXPECT_DOUBLE_EQ(forward[1], full);
  EXPECT_DOUBLE_EQ(backward[1], 1.25 * full);
}

// Mistral-7B, rank 16 on q, k, v, o: 32 * 16 * (4096 + 4096 + 2 * (4096 + 1024) + 4096 + 4096) = 13,631,488.
TEST(Lora, CountsItsAdapters) {
  const Trainable lora{.all = false, .lora_rank = 16, .targets = {"q_proj", "k_proj", "v_proj", "o_proj"}, .patterns = {}};
  const auto model = model_of(*preset("mistral-7b"), {}, lora);
  EXPECT_EQ(model->trainable().value(), 13631488);
  EXPECT_EQ(model->total().value(), 7241732096 + 13631488);
  const Parameter& a = (*model->parameters)[2];
  EXPECT_EQ(a.name, "model.layers.0.self_attn.q_proj.lora_A.default.weight");
  EXPECT_EQ(a.shape, (std::vector<std::int64_t>{16, 4096}));
  EXPECT_EQ((*model->parameters)[3].name, "model.layers.0.self_attn.q_proj.lora_B.default.weight");
  EXPECT_FALSE((*model->parameters)[1].trainable);
}

TEST(Lora, FrozenWeightsKeepNoInputAndNeedNoGradient) {
  const Trainable lora{.all = false, .lora_rank = 8, .targets = {"q_proj"}, .patterns = {}};
  const auto model = model_of(*preset("mistral-7b"), {}, lora);
  const LayerType& second = model->type_of((*model->layers)[2]);
  for (const Module& m : second.modules) {
    const bool adapter = m.name.find(".lora_A") != std::string::npos || m.name.find(".lora_B") != std::string::npos;
    EXPECT_EQ(m.backward_weight.products.size(), adapter ? 1u : 0u) << m.name;
  }
  for (const Tensor& t : second.tensors) {
    EXPECT_TRUE(t.name != "product" || t.saved_by < 0);  // input of the frozen down_proj
    EXPECT_NE(t.name, "normalised");                     // kept only for the gradient of the norm's weight
  }
  // The first block has nothing before it that trains: its norm and its base projections take no part in backward.
  const LayerType& first = model->type_of((*model->layers)[1]);
  EXPECT_TRUE(first.modules.front().backward_input.empty());
  EXPECT_NE((*model->layers)[1].type, (*model->layers)[2].type);
  EXPECT_EQ((*model->layers)[2].type, (*model->layers)[32].type);
}

// Mixtral with rank 4 on the experts' w1: 32 layers * 8 experts * 4 * (4096 + 14336); the experts' own matrices get no gradient.
TEST(Lora, ReachesExperts) {
  const auto model = model_of(*preset("mixtral-8x7b"), {}, {.all = false, .lora_rank = 4, .targets = {"w1"}, .patterns = {}});
  EXPECT_EQ(model->trainable().value(), 32LL * 8 * 4 * (4096 + 14336));
  for (const Module& m : model->type_of((*model->layers)[2]).modules) {
    if (!m.routed_experts) continue;
    EXPECT_DOUBLE_EQ(m.backward_weight.flops().base(), 2.0 * 2 * 2048 * 4 * (4096 + 14336));
  }
}

TEST(Lora, TargetsMustExist) {
  const Trainable lora{.all = false, .lora_rank = 8, .targets = {"q_proj", "query"}, .patterns = {}};
  EXPECT_NE(refused("llama-3-8b", {}, lora).find("'query'"), std::string::npos);
  EXPECT_NE(refused("llama-3-8b", {}, {.all = false, .lora_rank = 8, .targets = {}, .patterns = {}}).find("targets"), std::string::npos);
}

TEST(Patterns, TrainWhatTheyMatch) {
  const auto model =
      model_of(*preset("llama-3-8b"), {}, {.all = false, .lora_rank = 0, .targets = {}, .patterns = {"lm_head.*", "model.layers.3[01].*"}});
  EXPECT_EQ(model->trainable().value(), 128256LL * 4096 + 2 * 218112000LL);
  // Blocks before the first that trains keep nothing.
  EXPECT_EQ(kept(model->type_of((*model->layers)[1])).value(), 0);
  EXPECT_GT(kept(model->type_of((*model->layers)[32])).value(), 0);
  EXPECT_NE(refused("llama-3-8b", {}, {.all = false, .lora_rank = 0, .targets = {}, .patterns = {"encoder.*"}}).find("encoder.*"),
            std::string::npos);
}

TEST(Sequence, LearnedPositionsEnd) {
  Training training;
  training.sequence_length = 1025;
  EXPECT_NE(refused("gpt2", training).find("1024 positions"), std::string::npos);
  training.sequence_length = 2049;
  EXPECT_NE(refused("opt-1.3b", training).find("2048 positions"), std::string::npos);
  training.sequence_length = 513;
  EXPECT_NE(refused("bert-large", training).find("512 positions"), std::string::npos);
  training.sequence_length = 1 << 20;
  EXPECT_EQ(refused("llama-2-7b", training), "accepted");
}

TEST(Sequence, ThatOverflowsIsRefused) {
  Training training;
  training.sequence_length = training.micro_batch_size = std::int64_t{1} << 40;
  EXPECT_NE(refused("llama-2-7b", training).find("10^15"), std::string::npos);
  training.micro_batch_size = 1;
  training.sequence_length = 1 << 24;
  training.attention = AttentionKind::plain;
  EXPECT_NE(refused("llama-2-7b", training).find("10^15"), std::string::npos);
}

TEST(Sequence, OfAnImageIsItsPatches) {
  Training training;
  training.micro_batch_size = 3;
  const auto model = model_of(*preset("vit-base"), training);
  EXPECT_EQ(model->tokens_per_micro_batch.value(), 3 * 197);
  ASSERT_EQ(model->warnings.size(), 1u);
  training.sequence_length = 197;
  EXPECT_TRUE(model_of(*preset("vit-base"), training)->warnings.empty());
}

TEST(Types, AreSharedByAlikeLayers) {
  EXPECT_EQ(model_of(*preset("llama-3.1-405b"))->types.size(), 4u);
  EXPECT_EQ(model_of(*preset("gemma-2-2b"))->types.size(), 5u);
  EXPECT_EQ(model_of(*preset("deepseek-v3"))->types.size(), 5u);
}

TEST(Refusal, NamesTheFamilyAndThoseSupported) {
  for (const std::string type : {"t5", "mamba", "mamba2", "whisper", "LLAMA"}) {
    const std::string text = refusal("{model_type: " + type + ", hidden_size: 8}");
    EXPECT_NE(text.find("'" + type + "'"), std::string::npos) << text;
    EXPECT_NE(text.find("llama"), std::string::npos) << text;
  }
  EXPECT_NE(refusal("{hidden_size: 8}").find("model_type"), std::string::npos);
  EXPECT_NE(refusal("[1, 2]").find("map"), std::string::npos);
}

TEST(Refusal, MissingAndNonsenseValuesStandWhereTheyAre) {
  const std::string good = "vocab_size: 50, num_hidden_layers: 1, num_attention_heads: 4, intermediate_size: 12";
  EXPECT_NE(refusal("{model_type: llama, " + good + "}").find("hidden_size"), std::string::npos);
  for (const std::string value : {"-8", "0", "99999999999999999999", "2.5", "[8]", "{a: 1}", "true", "\"eight\"", "1e30"})
    EXPECT_NE(refusal("{model_type: llama, " + good + ", hidden_size: " + value + "}").find("config.json:1:"), std::string::npos) << value;
  EXPECT_NE(refusal("{model_type: llama, " + good + ", hidden_size: 9}").find("divide"), std::string::npos);
  EXPECT_NE(refusal("{model_type: llama, " + good + ", hidden_size: 8, num_key_value_heads: 3}").find("divide"), std::string::npos);
  EXPECT_NE(refusal("{model_type: llama, " + good + ", hidden_size: 8, tie_word_embeddings: maybe}").find("error"), std::string::npos);
  EXPECT_NE(refusal("{model_type: mixtral, " + good + ", hidden_size: 8, num_local_experts: 2, num_experts_per_tok: 3}").find("experts"),
            std::string::npos);
  EXPECT_NE(refusal("{model_type: llama, vocab_size: 16777216, hidden_size: 1048576, num_hidden_layers: 4096, num_attention_heads: 16384, "
                    "head_dim: 16384, intermediate_size: 4194304}")
                .find("10^16"),
            std::string::npos);
  EXPECT_NE(refusal("{model_type: qwen3_moe, " + good +
                    ", hidden_size: 8, num_experts: 4096, num_experts_per_tok: 1, "
                    "moe_intermediate_size: 4}")
                .find("accepted"),
            std::string::npos);
}

TEST(Multimodal, CountsTheTextModelAndWarns) {
  const auto model =
      model_of(config("{model_type: gemma3, vision_config: {hidden_size: 3}, text_config: {model_type: gemma3_text, "
                      "hidden_size: 2560, intermediate_size: 10240, num_hidden_layers: 34, sliding_window: 1024}}"));
  EXPECT_EQ(model->total().value(), 3880263168);  // Gemma-3-4B's language model (4,300,079,472 with its vision tower and projector)
  ASSERT_EQ(model->warnings.size(), 1u);
  EXPECT_NE(model->warnings.front().find("text model"), std::string::npos);
}

/// Any numbers in any keys: accepted or refused, never a crash, and what is accepted has a positive count.
RC_GTEST_PROP(Refusal, NoNumberIsFatal, ()) {
  const auto family = *rc::gen::elementOf(family_names());
  std::string text = "{model_type: " + family;
  for (const char* key : {"hidden_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "num_key_value_heads",
                          "head_dim",
                          "intermediate_size",
                          "vocab_size",
                          "n_embd",
                          "n_layer",
                          "n_head",
                          "d_model",
                          "n_layers",
                          "n_heads",
                          "ffn_dim",
                          "num_experts",
                          "num_local_experts",
                          "n_routed_experts",
                          "num_experts_per_tok",
                          "moe_intermediate_size",
                          "kv_lora_rank",
                          "q_lora_rank",
                          "qk_rope_head_dim",
                          "qk_nope_head_dim",
                          "v_head_dim",
                          "shared_expert_intermediate_size",
                          "first_k_dense_replace",
                          "image_size",
                          "patch_size",
                          "sliding_window",
                          "word_embed_proj_dim"}) {
    const auto value = *rc::gen::weightedOneOf<std::int64_t>(
        {{6, rc::gen::elementOf(std::vector<std::int64_t>{1, 2, 4, 8, 16})}, {1, rc::gen::inRange<std::int64_t>(-3, 20)}});
    text += std::string(", ") + key + ": " + std::to_string(value);
  }
  const auto architecture = read_hf_config(tree(text + "}"));
  RC_CLASSIFY(architecture.has_value(), "accepted");
  if (!architecture) {
    RC_ASSERT(!architecture.error().empty());
    return;
  }
  Training training;
  training.sequence_length = *rc::gen::inRange<std::int64_t>(1, 40);
  training.attention = *rc::gen::element(AttentionKind::flash, AttentionKind::plain);
  training.compile = *rc::gen::arbitrary<bool>();
  const auto model = build_model(*architecture, training);
  RC_ASSERT(model.has_value());
  RC_ASSERT((*model)->total() > Elements{});
  RC_ASSERT((*model)->model_flops_per_micro_batch > Flops{});
}

}  // namespace
}  // namespace shardsim::testing
