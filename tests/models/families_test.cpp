// SPDX-License-Identifier: Apache-2.0
// Parameter counts of families against their own code (recorded by scripts/record_model_counts.py), heads, quantised weights, sizes alone.
#include <gmock/gmock.h>

#include "models/families/architectures.hpp"
#include "models_support.hpp"

namespace shardsim::testing {
namespace {

using ::testing::HasSubstr;

Result<std::shared_ptr<const Architecture>> architecture_from(const std::string& text) {
  const auto node = read_json({"config.json", text});
  if (!node) return tl::unexpected(node.error());
  return read_hf_config(*node);
}

std::shared_ptr<const Model> model_from(const std::string& text, Training training = {}, const Trainable& trainable = {}) {
  const auto architecture = architecture_from(text);
  if (!architecture) {
    ADD_FAILURE() << architecture.error().text();
    return std::make_shared<Model>();
  }
  const auto model = build_model(*architecture, training, trainable);
  if (!model) ADD_FAILURE() << model.error().text();
  return model ? *model : std::make_shared<Model>();
}

std::int64_t count_of_fixture(const std::string& name) {
  const auto source = read_source(std::string(SHARDSIM_SOURCE_DIR) + "/tests/fixtures/failing/cfg/" + name + ".json");
  if (!source) return -1;
  Training training;
  training.sequence_length = 128;
  return model_from(source->text, training)->total().value();
}

TEST(Families, CountsEqualTheirOwnCode) {
  const auto source = read_source(std::string(SHARDSIM_SOURCE_DIR) + "/tests/models/data/families.json");
  ASSERT_TRUE(source);
  const auto rows = read_json(*source);
  ASSERT_TRUE(rows);
  ASSERT_GT(rows->items.size(), 90U);
  Training training;
  training.sequence_length = 64;
  for (const ConfigNode& row : rows->items) {
    const std::string name = row.find("name")->text;
    const auto architecture = read_hf_config(*row.find("config"));
    ASSERT_TRUE(architecture) << name << ": " << architecture.error().text();
    for (const AttentionKind kind : {AttentionKind::flash, AttentionKind::plain}) {
      training.attention = kind;
      const auto model = build_model(*architecture, training);
      ASSERT_TRUE(model) << name << ": " << model.error().text();
      EXPECT_EQ(std::to_string((*model)->total().value()), row.find("parameters")->text) << name;
      for (const std::string& warning : (*model)->warnings)
        EXPECT_EQ(warning.find("not known"), std::string::npos) << name << ": " << warning;
    }
  }
}

// Class F20 of the failing cases: a reward model has one output a token and no vocabulary of logits.
TEST(Families, TheHeadIsTheOneThatTheConfigNames) {
  EXPECT_EQ(count_of_fixture("llama_seqcls"), 7'504'928'768);
  EXPECT_EQ(count_of_fixture("bert_cls"), 335'143'938);  // BertModel with its pooler, 335,141,888, and 2 x 1024 + 2
  const std::string llama =
      R"("model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000)";
  const auto causal = model_from("{" + llama + R"(, "architectures": ["LlamaForCausalLM"]})");
  const auto base = model_from("{" + llama + R"(, "architectures": ["LlamaModel"]})");
  const auto classes = model_from("{" + llama + R"(, "architectures": ["LlamaForTokenClassification"], "num_labels": 3})");
  EXPECT_EQ(causal->total().value() - base->total().value(), 64'000);
  EXPECT_EQ(classes->total().value() - base->total().value(), 3 * 64 + 3);
  const auto unheard = model_from("{" + llama + R"(, "architectures": ["LlamaForMindReading"]})");
  EXPECT_THAT(unheard->warnings.front(), HasSubstr("LlamaForMindReading"));
}

// F22 and F26: keys beside text_config, and defaults of the family's config class.
TEST(Families, KeysBesideTheTextConfigAndDefaultsCount) {
  EXPECT_EQ(count_of_fixture("qwen25vl_3b_nested"), 3'754'622'976);  // the text model, 3,085,938,688, with its vision tower
  EXPECT_EQ(count_of_fixture("llava15"), 7'063'427'072);
  const auto bare = model_from(R"({"model_type": "mixtral"})");
  EXPECT_EQ(bare->total().value(), 46'702'792'704);
  EXPECT_THAT(bare->warnings.front(), HasSubstr("num_key_value_heads 8"));
  const auto odd = model_from(R"({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "new_kind_of_layer": true})");
  EXPECT_THAT(odd->warnings.back(), HasSubstr("new_kind_of_layer"));
}

Trainable adapters() {
  Trainable lora;
  lora.all = false;
  lora.lora_rank = 16;
  lora.targets = {"q_proj", "v_proj"};
  return lora;
}

// F24 and F25: half a byte a frozen weight and its share of the scales; embedding and head stay in 16 bits; the whole model cannot train.
TEST(Families, QuantisedWeightsAreFrozenAtTheirStoredSize) {
  for (const char* name : {"llama_bnb4", "llama_gptq"}) {
    const auto source = read_source(std::string(SHARDSIM_SOURCE_DIR) + "/tests/fixtures/failing/cfg/" + name + ".json");
    ASSERT_TRUE(source);
    const auto architecture = architecture_from(source->text);
    ASSERT_TRUE(architecture);
    Training training;
    training.sequence_length = 512;
    const auto whole = build_model(*architecture, training);
    ASSERT_FALSE(whole) << name;
    EXPECT_THAT(whole.error().text(), HasSubstr("quantization_config"));
    const auto model = build_model(*architecture, training, adapters());
    ASSERT_TRUE(model) << model.error().text();
    std::int64_t frozen = 0;
    for (const Parameter& p : *(*model)->parameters)
      if (!p.trainable) frozen += 2 * p.elements.value();
    EXPECT_GT(frozen, 5'500'000'000) << name;
    EXPECT_LT(frozen, 5'800'000'000) << name;
    EXPECT_EQ((*model)->total().value() - (*model)->trainable().value(), 8'030'261'248) << name;
  }
  const auto fp8 = model_from(
      R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 1000, "quantization_config": {"quant_method": "fp8"}})");
  EXPECT_THAT(fp8->warnings.back(), HasSubstr("converted"));
  EXPECT_THAT(architecture_from(R"({"model_type": "llama", "quantization_config": {"quant_method": "unheard"}})").error().text(),
              HasSubstr("'unheard'"));
}

// Converting the weight takes one in the compute dtype for each product, forward and backward.
TEST(Families, QuantisedProductsConvertTheirWeights) {
  const std::string sizes =
      R"("model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 1000)";
  Training training;
  training.sequence_length = 8;
  const auto plain = model_from("{" + sizes + "}", training, adapters());
  const auto packed =
      model_from("{" + sizes + R"(, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true}})", training, adapters());
  const auto module_of = [](const Model& model, const std::string& name) -> const Module& {
    for (const LayerType& type : model.types)
      for (const Module& m : type.modules)
        if (m.name == name) return m;
    throw std::logic_error("no module " + name);
  };
  const Module &before = module_of(*plain, "mlp.down_proj"), &after = module_of(*packed, "mlp.down_proj");
  EXPECT_EQ(after.forward_temporary.value() - before.forward_temporary.value(), 2 * 64 * 128);
  EXPECT_EQ(after.backward_temporary.value() - before.backward_temporary.value(), 2 * 64 * 128);
  EXPECT_GT(after.forward.memory, before.forward.memory);
}

TEST(Families, ASizeAloneIsAModelOfThatSize) {
  for (const double size : {5e7, 3.5e8, 1.3e9, 7e9, 1.3e10, 3.4e10, 7e10, 1.75e11, 4.05e11, 1e12}) {
    const auto architecture = model_of_size(size);
    ASSERT_TRUE(architecture) << size;
    Training training;
    const auto model = build_model(*architecture, training);
    ASSERT_TRUE(model) << size << model.error().text();
    EXPECT_NEAR(static_cast<double>((*model)->total().value()) / size, 1, 0.02) << size;
    EXPECT_THAT((*model)->warnings.front(), HasSubstr("only the size"));
  }
  EXPECT_FALSE(model_of_size(3));
}

// F38: softmax is on autocast's fp32 list, so its result is kept in fp32 whatever the model's own code does.
TEST(Families, AutocastKeepsSoftmaxInFp32) {
  const std::string bert =
      R"({"model_type": "bert", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 100})";
  const auto kept = [&](DType parameters) {
    Training training;
    training.sequence_length = 32;
    training.attention = AttentionKind::plain;
    training.precision.parameters = parameters;
    training.precision.compute = DType::fp16;
    std::int64_t bytes = 0;
    for (const LayerType& type : model_from(bert, training)->types)
      for (const Tensor& t : type.tensors)
        if (t.name == "softmax") bytes += t.elements.value() * size_of(t.dtype);
    return bytes;
  };
  EXPECT_EQ(kept(DType::fp32), 4 * 4 * 32 * 32);
  EXPECT_EQ(kept(DType::fp16), 2 * 4 * 32 * 32);
}

}  // namespace
}  // namespace shardsim::testing
