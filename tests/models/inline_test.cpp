// SPDX-License-Identifier: Apache-2.0
// Inline layers: names, registration order, sizes, and what is refused.
#include "models_support.hpp"

namespace shardsim::testing {
namespace {

std::shared_ptr<const Model> layers(const std::string& text) {
  auto architecture = read_layers(tree(text));
  if (!architecture) throw std::runtime_error(architecture.error().text());
  return model_of(*architecture);
}

std::string refused(const std::string& text) {
  const auto architecture = read_layers(tree(text));
  return architecture ? "accepted" : architecture.error().text();
}

// The toy model of the padding fixtures: embedding, two blocks of four parameters, a norm and a head.
const char* const toy = R"(
- {name: embed, parameters: {weight: [101, 8]}}
- {name: block, repeat: 2, block: true, parameters: {w1: [10, 8], b1: [10], w2: [8, 10], b2: [8]}}
- {name: norm, parameters: {weight: [8]}}
- {name: head, parameters: {weight: [101, 8]}}
)";

TEST(InlineLayers, AnythingWithAShapeIsAParameter) {
  const auto model = layers(toy);
  EXPECT_EQ(model->total().value(), 1980);
  std::vector<std::string> names;
  for (const Parameter& p : *model->parameters) names.push_back(p.name);
  const std::vector<std::string> expected{"embed.weight", "block.0.w1", "block.0.b1", "block.0.w2",  "block.0.b2", "block.1.w1",
                                          "block.1.b1",   "block.1.w2", "block.1.b2", "norm.weight", "head.weight"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ((*model->parameters)[1].shape, (std::vector<std::int64_t>{10, 8}));
  int blocks = 0;
  for (const Layer& layer : *model->layers) blocks += model->type_of(layer).block ? 1 : 0;
  EXPECT_EQ(blocks, 2);
}

// DDP's buckets of ResNet-18 (pytorch#48880): reverse registration order, closed at 1 MiB, then at 25 MiB.
TEST(InlineLayers, ResNet18HasTorchsRegistrationOrder) {
  const auto model = model_of(*preset("resnet-18"));
  EXPECT_EQ(model->parameters->size(), 62u);
  std::vector<std::int64_t> buckets{0};
  std::int64_t limit = 1 << 20;
  for (auto p = model->parameters->rbegin(); p != model->parameters->rend(); ++p) {
    buckets.back() += 4 * p->elements.value();
    if (buckets.back() < limit) continue;
    limit = 25 << 20;
    buckets.push_back(0);
  }
  EXPECT_EQ(buckets, (std::vector<std::int64_t>{2052000, 28852224, 15853824}));
}

TEST(InlineLayers, GradientsArriveInReverse) {
  const auto model = model_of(*preset("resnet-18"));
  std::vector<std::string> arrived;
  for (auto layer = model->layers->rbegin(); layer != model->layers->rend(); ++layer)
    for (const std::int32_t i : model->type_of(*layer).arrival)
      arrived.push_back(model->at(layer->parameters[static_cast<std::size_t>(i)]).name);
  ASSERT_EQ(arrived.size(), 62u);
  EXPECT_EQ(arrived.front(), "fc.bias");
  EXPECT_EQ(arrived[1], "fc.weight");
  EXPECT_EQ(arrived[2], "layer4.1.bn2.bias");
  EXPECT_EQ(arrived.back(), "conv1.weight");
}

// 1.81 GMAC a 224 x 224 image (torchvision), so 3.63 GFLOP forward; conv1 (0.236 GFLOP) has no gradient of its input.
TEST(InlineLayers, ConvolutionsHaveTheirFlops) {
  Training training;
  training.sequence_length = 1;
  const auto model = model_of(*preset("resnet-18"), training);
  EXPECT_NEAR(model->model_flops_per_micro_batch.base(), 3 * 3.628e9 - 0.236e9, 0.01e9);
}

TEST(InlineLayers, EachTypeDeclaresTorchsShapes) {
  const auto model = layers(R"(
- {name: table, type: embedding, rows: 100, width: 16}
- {name: up, type: linear, in: 16, out: 64}
- {name: act, type: activation}
- {name: grouped, type: conv2d, in: 64, out: 32, kernel: [3, 1], groups: 4, output: [5, 7]}
- {name: norm, type: norm, size: 32, bias: false}
)");
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> got;
  for (const Parameter& p : *model->parameters) got.emplace_back(p.name, p.shape);
  const decltype(got) expected{{"table.weight", {100, 16}},        {"up.weight", {64, 16}}, {"up.bias", {64}},
                               {"grouped.weight", {32, 16, 3, 1}}, {"grouped.bias", {32}},  {"norm.weight", {32}}};
  EXPECT_EQ(got, expected);
}

TEST(InlineLayers, NonsenseIsRefusedWhereItStands) {
  EXPECT_NE(refused("[]").find("list of layers"), std::string::npos);
  EXPECT_NE(refused("42").find("list of layers"), std::string::npos);
  EXPECT_NE(refused("- {name: a, type: linear, in: 0, out: 4}").find("config.json:1:"), std::string::npos);
  EXPECT_NE(refused("- {name: a, type: linaer, in: 1, out: 4}").find("linear"), std::string::npos);
  EXPECT_NE(refused("- {name: a, type: linear, in: 1, out: 4, bais: true}").find("bias"), std::string::npos);
  EXPECT_NE(refused("- {type: linear, in: 1, out: 4}").find("name"), std::string::npos);
  EXPECT_NE(refused("- {name: a, parameters: {w: [4294967296, 4294967296]}}").find("10^16"), std::string::npos);
  EXPECT_NE(refused("- {name: a, parameters: {w: [-1]}}").find("error"), std::string::npos);
  EXPECT_NE(refused("- {name: a, repeat: 99999999, parameters: {w: [1]}}").find("error"), std::string::npos);
  EXPECT_NE(refused("- {name: a, parameters: {w: [1]}}\n- {name: a, parameters: {w: [1]}}").find("two layers"), std::string::npos);
  EXPECT_NE(refused("- {name: a, type: conv2d, in: 3, out: 4, kernel: 3, groups: 2, output: 4}").find("groups"), std::string::npos);
  EXPECT_NE(refused("- {name: a, type: activation}").find("no parameters"), std::string::npos);
}

// Attention as a block has it, a head on the token table, cross-entropy on its logits.
TEST(InlineLayers, AttentionTiedHeadAndLoss) {
  const std::string text =
      "[{name: embed, type: embedding, rows: 1000, width: 64}, {name: attn, type: attention, width: 64, heads: 8, kv_heads: 2, repeat: 2, "
      "block: true}, "
      "{name: head, type: linear, in: 64, out: 1000, bias: false, tied_to: embed.weight}, {name: loss, type: loss}]";
  const auto architecture = read_layers(tree(text));
  ASSERT_TRUE(architecture) << architecture.error().text();
  Training training;
  training.sequence_length = 32;
  const auto model = model_of(*architecture, training);
  EXPECT_EQ(model->total().value(), 64'000 + 2 * (2 * 64 * 64 + 2 * 64 * 16));
  EXPECT_EQ(model->tied.size(), 1U);
  bool logits = false;
  for (const LayerType& type : model->types)
    for (const Tensor& t : type.tensors) logits = logits || (t.logits && t.elements.value() == 32 * 1000);
  EXPECT_TRUE(logits);
  const auto wrong = read_layers(tree("[{name: head, type: linear, in: 64, out: 10, tied_to: embed.weight}]"));
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().text().find("embed.weight"), std::string::npos);
}

}  // namespace
}  // namespace shardsim::testing
