// SPDX-License-Identifier: Apache-2.0
// Bytes kept for backward: published closed forms, measured counts, and hand-made sums.
#include <map>

#include "models_support.hpp"
#include "shared_data.hpp"

namespace shardsim::testing {
namespace {

/// A GPT layer as the closed forms have it: one-kernel GELU, softmax in 16 bits, dropout after attention and feed-forward part.
const char* const gpt = R"({model_type: gpt2, vocab_size: 50257, n_positions: 1024, n_embd: 768, n_layer: 2, n_head: 12,
                            activation_function: gelu})";
constexpr std::int64_t s = 1024, b = 2, h = 768, a = 12;

Training plain_with_dropout() {
  Training training;
  training.sequence_length = s;
  training.micro_batch_size = b;
  training.attention = AttentionKind::plain;
  training.dropout = 0.1;
  return training;
}

/// Mean and 1/std of two LayerNorms, fp32: the closed forms leave them out.
constexpr std::int64_t statistics = 2 * 2 * 4 * s * b;

// arXiv 2205.05198, equation 1: sbh (34 + 5 a s / h) bytes a layer.
TEST(KeptForBackward, PlainAttentionEqualsTheClosedForm) {
  const auto model = model_of(config(gpt), plain_with_dropout());
  EXPECT_EQ(kept(first_block(*model)).value(), 34 * s * b * h + 5 * a * s * s * b + statistics);
}

// Its section 4.2: attention recomputed leaves 34 sbh.
TEST(KeptForBackward, CoreAttentionLeaves34) {
  const auto model = model_of(config(gpt), plain_with_dropout());
  std::int64_t sum = 0;
  for (const Tensor& t : first_block(*model).tensors)
    if (t.saved_by >= 0 && !t.core_attention) sum += bytes(t.elements, t.dtype).value();
  EXPECT_EQ(sum, 34 * s * b * h + statistics);
}

// Full checkpointing keeps the layer's input: 2 sbh.
TEST(KeptForBackward, FullLeavesTheInput) {
  const auto model = model_of(config(gpt), plain_with_dropout());
  std::int64_t sum = 0;
  for (const Tensor& t : first_block(*model).tensors)
    if (t.producer < 0) sum += bytes(t.elements, t.dtype).value();
  EXPECT_EQ(sum, 2 * s * b * h);
}

// "gelu_new" is eight kernels in transformers: 0.5 x, tanh and 1 + tanh are kept beside x, 3 * 8 sbh more. Compiled it is one kernel.
TEST(KeptForBackward, CompositeGeluKeepsThreeMore) {
  const std::string composite = R"({model_type: gpt2, vocab_size: 50257, n_positions: 1024, n_embd: 768, n_layer: 2, n_head: 12})";
  Training training = plain_with_dropout();
  const std::int64_t one_kernel = kept(first_block(*model_of(config(gpt), training))).value();
  EXPECT_EQ(kept(first_block(*model_of(config(composite), training))).value(), one_kernel + 24 * s * b * h);
  training.compile = true;
  EXPECT_EQ(kept(first_block(*model_of(config(composite), training)), true).value(), one_kernel);
}

// Mistral-7B with PEFT's fp32 adapters on the four projections, dropout 0.1. In units of 4,096 bytes a token: each adapter keeps its
// dropped input in fp32 and the mask, 4 (4 + 1); norms 2 * 4; q, k and v repeated, and context 4 * 2; gate, its activation and up 3 *
// 7: 57. Besides, the log-sum-exp of 32 heads, two 1/rms and four low-rank results of 16, all fp32: 392 bytes.
TEST(KeptForBackward, AdaptersInFp32WithDropout) {
  Training training;
  training.sequence_length = 4096;
  training.precision.master = std::nullopt;
  const Trainable lora{.all = false,
                       .lora_rank = 16,
                       .targets = {"q_proj", "k_proj", "v_proj", "o_proj"},
                       .lora_dropout = 0.1,
                       .lora_dtype = DType::fp32,
                       .patterns = {}};
  const auto model = model_of(*preset("mistral-7b"), training, lora);
  const LayerType& block = model->type_of((*model->layers)[2]);  // the first whose input needs a gradient
  EXPECT_EQ(kept(block).value(), (57 * 4096 + 392) * std::int64_t{4096});
}

// Hidden-state-sized bf16 tensors that one decoder layer leaves allocated after its forward, its output included, measured with
// transformers and SDPA (stas00/ml-engineering). Hand count for Llama-3.1-8B: norms 2 * 4, q 1, k and v repeated 1 + 1, context 1 and
// its copy 1, gated part 4 * 3.5, output 1 = 28.
TEST(KeptForBackward, MeasuredCopiesOfTheHiddenState) {
  const std::vector<std::pair<std::string, double>> measured{
      {"llama-3.1-8b", 28.0}, {"mistral-7b", 28.0}, {"qwen3-8b", 29.8}, {"gemma-2b", 48.0}};
  for (const auto& [name, copies] : measured) {
    const auto model = model_of(*preset(name));
    const LayerType& block = first_block(*model);
    const double hidden = static_cast<double>(block.tensors.front().elements.value()) * 2;
    EXPECT_NEAR(static_cast<double>(kept(block).value()) / hidden + 1, copies, 0.1) << name;
  }
}

// The same from the table of published figures, for the models that are presets.
TEST(KeptForBackward, PublishedCopiesOfTheHiddenState) {
  const fs::path path = data() / "activation_memory.csv";
  if (!fs::exists(path)) GTEST_SKIP() << path << " is not there";
  const std::map<std::string, std::string> presets{{"meta-llama/Llama-3.1-8B", "llama-3.1-8b"},
                                                   {"mistralai/Mistral-7B-v0.3", "mistral-7b"},
                                                   {"deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "qwen3-8b"},
                                                   {"google/gemma-1.1-2b-it", "gemma-2b"}};
  int compared = 0;
  for (const auto& row : csv(path)) {
    const auto known = presets.find(row[0]);
    if (known == presets.end() || row[8].find("kept per layer") == std::string::npos) continue;
    const auto model = model_of(*preset(known->second));
    const LayerType& block = first_block(*model);
    const double hidden = static_cast<double>(block.tensors.front().elements.value()) * 2;
    EXPECT_NEAR(static_cast<double>(kept(block).value()) / hidden + 1, std::stod(row[9]), 0.02 * std::stod(row[9])) << row[0];
    ++compared;
  }
  EXPECT_EQ(compared, 4);
}

// Compiled, norms keep the residual stream itself and the activation is computed again: 1 + 1, 1 + 1, q, k, v, context, copy 5, three of
// 3.5, without the output.
TEST(KeptForBackward, CompiledLlamaKeepsLess) {
  Training training;
  training.compile = true;
  const auto model = model_of(*preset("llama-3.1-8b"), training);
  const LayerType& block = first_block(*model);
  EXPECT_NEAR(static_cast<double>(kept(block, true).value()) / (2048 * 4096 * 2), 4 + 5 + 10.5, 0.02);
}

// stas00's arithmetic for Llama-3.1-8B at 32,768 tokens: 32 layer inputs of 0.25 GiB and 15.66 GiB a copy of the logits in fp32.
TEST(KeptForBackward, LongSequenceOfLlama) {
  Training training;
  training.sequence_length = 32768;
  const auto model = model_of(*preset("llama-3.1-8b"), training);
  Bytes inputs;
  for (const Layer& layer : *model->layers) {
    const LayerType& type = model->type_of(layer);
    if (type.block) inputs += bytes(type.tensors.front().elements, type.tensors.front().dtype);
  }
  EXPECT_EQ(inputs, gibibytes(8));
  const LayerType& loss = model->types.back();
  ASSERT_EQ(loss.name, "loss");
  const auto wide = std::find_if(loss.tensors.begin(), loss.tensors.end(), [](const Tensor& t) { return t.name == "logits in fp32"; });
  ASSERT_NE(wide, loss.tensors.end());
  EXPECT_EQ(bytes(wide->elements, wide->dtype).value(), std::int64_t{4} * 32768 * 128256);  // 15.66 GiB
}

std::vector<std::string> logits_of(const Loss& loss, LogitsLife life = LogitsLife::dropped) {
  Training training;
  training.loss = loss;
  training.logits = life;
  const auto model = model_of(*preset("llama-3.1-8b"), training);
  std::vector<std::string> all;
  for (const Tensor& t : model->types.back().tensors) {
    EXPECT_TRUE(t.logits);
    all.push_back(t.name + " " + std::string(name_of(t.dtype)) + " " + std::to_string(t.elements.value() / 128256) +
                  (t.saved_by >= 0 ? " kept" : ""));
  }
  return all;
}

TEST(Loss, KindsDifferInWhatTheyMaterialise) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(logits_of({}), (Names{"logits bf16 2048", "logits in fp32 fp32 2048", "log-probabilities fp32 2048 kept"}));
  EXPECT_EQ(logits_of({}, LogitsLife::held),
            (Names{"logits bf16 2048 kept", "logits in fp32 fp32 2048", "log-probabilities fp32 2048 kept"}));
  EXPECT_EQ(logits_of({}, LogitsLife::replaced),
            (Names{"logits bf16 2048", "logits in fp32 fp32 2048 kept", "log-probabilities fp32 2048 kept"}));
  EXPECT_EQ(logits_of({Loss::Kind::fused, 1}), (Names{"logits bf16 2048 kept"}));
  EXPECT_EQ(logits_of({Loss::Kind::chunked, 8}), (Names{"logits bf16 2048", "logits in fp32 fp32 256", "log-probabilities fp32 256 kept"}));
}

// Head and loss as one operator: backward finds the gradients of the head's input and weight, and no logits.
TEST(Loss, FusedWithTheHeadHoldsNoLogits) {
  Training training;
  training.loss = {Loss::Kind::fused_linear, 1};
  const auto model = model_of(*preset("llama-3.1-8b"), training);
  const LayerType& head = model->types[model->types.size() - 2];
  std::int64_t kept = 0;
  for (const Tensor& t : head.tensors) {
    EXPECT_LT(t.elements.value(), std::int64_t{2048} * 128256) << t.name;
    if (t.parameter_gradient) kept += t.elements.value();
  }
  EXPECT_EQ(kept, std::int64_t{128256} * 4096);
  EXPECT_EQ(head.modules.back().forward_temporary.value(), 64 * 128256 * 2) << "a chunk of 64 tokens: 2048 / ceil(128256 / 4096)";
}

// torchtitan's policy keeps every second product (q, v, gate, down) and the attention output with its log-sum-exp.
TEST(KeptForBackward, SelectiveKeepsEverySecondProduct) {
  using Names = std::vector<std::string>;
  const auto kept_names = [](bool compile) {
    Training training;
    training.compile = compile;
    const auto model = model_of(*preset("llama-3.1-8b"), training);
    const LayerType& block = first_block(*model);
    Names modules, tensors;
    for (const Module& m : block.modules)
      if (m.kept_by_selective) modules.push_back(m.name);
    for (const Tensor& t : block.tensors)
      if (t.kept_by_selective) tensors.push_back(block.modules[static_cast<std::size_t>(t.producer)].name);
    return std::pair{modules, tensors};
  };
  const Names modules{"self_attn.q_proj", "self_attn.v_proj", "self_attn.attention", "mlp.gate_proj", "mlp.down_proj"};
  Names tensors{"self_attn.q_proj", "self_attn.v_proj", "self_attn.attention", "self_attn.attention", "mlp.gate_proj", "mlp.down_proj"};
  EXPECT_EQ(kept_names(false), std::pair(modules, tensors));
  tensors.pop_back();  // compiled, what only the residual sum reads is dropped
  EXPECT_EQ(kept_names(true), std::pair(modules, tensors));
}

// Autocast: the residual stream stays in fp32, each product casts its input and its weight and keeps both casts.
TEST(KeptForBackward, AutocastKeepsCasts) {
  Training training;
  training.precision.parameters = DType::fp32;
  const auto model = model_of(*preset("llama-2-7b"), training);
  const LayerType& block = first_block(*model);
  EXPECT_EQ(block.tensors.front().dtype, DType::fp32);
  std::int64_t weights = 0, inputs = 0;
  for (const Tensor& t : block.tensors) {
    if (t.name == "weight in compute dtype") weights += t.elements.value();
    if (t.name == "input in compute dtype") inputs += t.elements.value();
    if (t.name == "weight in compute dtype" || t.name == "input in compute dtype") {
      EXPECT_EQ(t.dtype, DType::bf16);
      EXPECT_GE(t.saved_by, 0);
    }
  }
  EXPECT_EQ(weights, 202383360 - 2 * 4096);          // all of the block but its norms
  EXPECT_EQ(inputs, std::int64_t{5} * 2048 * 4096);  // q, k, v, gate, up; the context and the product are bf16 already
}

TEST(KeptForBackward, DropoutMasksOnlyWithDropout) {
  Training training = plain_with_dropout();
  const auto masks = [&] {
    const auto model = model_of(config(gpt), training);
    const auto& tensors = first_block(*model).tensors;
    return std::count_if(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.name == "dropout mask"; });
  };
  EXPECT_EQ(masks(), 3);
  training.dropout = 0;
  EXPECT_EQ(masks(), 0);
}

TEST(Tensors, LiveWithinTheirLayer) {
  for (const std::string& name : preset_names()) {
    Training training;
    training.sequence_length = 128;
    const auto model = model_of(*preset(name), training);
    for (const LayerType& type : model->types) {
      const auto modules = static_cast<std::int32_t>(type.modules.size());
      for (const Tensor& t : type.tensors) {
        EXPECT_GE(t.last_consumer, t.producer) << name << ' ' << type.name << ' ' << t.name;
        EXPECT_LE(t.last_consumer, modules);
        EXPECT_LT(t.saved_by, modules);
        EXPECT_TRUE(t.saved_by < 0 || t.saved_by >= t.producer);
        EXPECT_GT(t.elements.value(), 0);
      }
    }
  }
}

}  // namespace
}  // namespace shardsim::testing
