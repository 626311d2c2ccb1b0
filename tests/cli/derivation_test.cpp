// SPDX-License-Identifier: Apache-2.0
#include "studies/formula/derivation.hpp"

#include <gtest/gtest.h>

#include "studies/formula/deepspeed_estimator.hpp"
#include "studies/formula/symbols.hpp"

namespace shardsim {
namespace {

/// One embedding of 1000 and two blocks of 300 elements, of which the second block's second parameter is frozen.
struct Sample {
  Model model;
  Job job;
  explicit Sample(const std::string& strategy) {
    const auto parameter = [](const char* name, std::int64_t elements, bool trainable) {
      return Parameter{.name = name, .shape = {elements}, .elements = Elements{elements}, .trainable = trainable};
    };
    model.parameters = std::make_shared<const std::vector<Parameter>>(
        std::vector<Parameter>{parameter("embed", 1000, true), parameter("a0", 100, true), parameter("a1", 200, true),
                               parameter("b0", 100, true), parameter("b1", 200, false)});
    LayerType embedding, block;
    block.block = true;
    model.types = {embedding, block};
    model.layers = std::make_shared<const std::vector<Layer>>(std::vector<Layer>{{"embed", 0, {ParameterId{0}}},
                                                                                 {"0", 1, {ParameterId{1}, ParameterId{2}}},
                                                                                 {"1", 1, {ParameterId{3}, ParameterId{4}}},
                                                                                 {"head", 0, {ParameterId{0}}}});
    job.model = &model;
    job.world_size = 8;
    job.training.gradient_accumulation_steps = 3;
    job.strategy.name = strategy;
  }
};

TEST(Symbols, CountTheModelAndTheJob) {
  const Sample sample("zero3");
  const Symbols symbols = symbols_of(sample.job);
  const std::map<std::string, std::int64_t> expected{{"psi", 1600},  {"psi_trainable", 1400},
                                                     {"root", 1000}, {"block", 300},
                                                     {"layers", 2},  {"n", 8},
                                                     {"s", 8},       {"r", 1},
                                                     {"g", 3},       {"e_p", 2},
                                                     {"e_g", 2},     {"e_r", 2},
                                                     {"k", 12}};
  ASSERT_EQ(symbols.size(), expected.size());
  for (const auto& [name, value] : expected) EXPECT_EQ(symbols.at(name).integer(), value) << name;
}

TEST(Derivation, AgreesWithTheTextbookOfEveryStrategy) {
  for (const StrategyInfo& info : strategies()) {
    for (const std::int64_t replicas : {1, 2}) {
      Sample sample(info.name);
      if (replicas > 1) sample.job.strategy.options.set("replicate", replicas);
      const Derivation derivation = derive(sample.job);
      const Textbook book = textbook(sample.job);
      EXPECT_EQ(derivation.states[0].value, book.parameters) << info.name;
      EXPECT_EQ(derivation.states[1].value, book.gradients) << info.name;
      EXPECT_EQ(derivation.states[2].value, book.optimizer_states) << info.name;
      // Each rounds its own fractions up: sums of two may differ by one byte.
      EXPECT_LE(std::abs((derivation.sent.value - book.sent_per_rank).value()), 1) << info.name;
    }
  }
}

TEST(Derivation, PutsNumbersIntoFormulas) {
  EXPECT_EQ(with_numbers("k * psi / s", symbols_of(Sample("zero1").job)), "12 * 1600 / 8");
  EXPECT_EQ(derive(Sample("zero1").job).states[2].formula, "k * psi_trainable / s");  // not all of it trains
}

double gib(Bytes bytes) { return static_cast<double>(bytes.value()) / static_cast<double>(1 << 30); }

// Published example: t5-3b (2851M parameters, largest layer 32M) on one node of 8 GPUs.
TEST(DeepSpeedEstimator, ReproducesTheDocumentedExample) {
  const auto rows = deepspeed_estimates({Elements{2'851'000'000}, Elements{32'000'000}, 8, 1});
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_NEAR(gib(rows[0].gpu_documented), 15.93, 0.005);
  EXPECT_NEAR(gib(rows[0].gpu), 11.28, 0.005);  // the code counts differently
  EXPECT_NEAR(gib(rows[1].gpu), 5.31, 0.005);
  EXPECT_NEAR(gib(rows[0].cpu), 127.48, 0.05);
  EXPECT_NEAR(gib(rows[1].cpu), 127.48, 0.05);
  EXPECT_NEAR(gib(rows[2].gpu), 6.10, 0.01);
  EXPECT_NEAR(gib(rows[3].gpu), 0.79, 0.01);
  EXPECT_NEAR(gib(rows[3].cpu), 63.74, 0.05);
  EXPECT_NEAR(gib(rows[4].gpu), 0.12, 0.005);
  EXPECT_NEAR(gib(rows[4].cpu), 71.71, 0.05);
}

// 6805M parameters, largest layer 131M, on 4 GPUs of one node.
TEST(DeepSpeedEstimator, ReproducesAReportedRun) {
  const auto rows = deepspeed_estimates({Elements{6'805'000'000}, Elements{131'000'000}, 4, 1});
  EXPECT_NEAR(gib(rows[4].gpu), 0.49, 0.005);
  EXPECT_NEAR(gib(rows[3].gpu), 3.66, 0.005);
  EXPECT_NEAR(gib(rows[2].gpu), 29.01, 0.005);
  EXPECT_NEAR(gib(rows[4].cpu), 171.13, 0.05);
  EXPECT_NEAR(gib(rows[3].cpu), 152.11, 0.05);
}

}  // namespace
}  // namespace shardsim
