// SPDX-License-Identifier: Apache-2.0
// training.stack: names, files, single values, and the stack that a strategy is usually run by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scenarios/reader/scenario.hpp"

namespace shardsim {
namespace {

Result<Scenario> with_stack(const std::string& stack, const std::string& strategy = "fsdp2") {
  const std::string text = "model: {preset: llama-3-8b}\ncluster: {profile: clusters/h100-sxm.yaml, nodes: 1}\ntraining: {" + stack +
                           "}\nstrategy: {name: " + strategy + "}\n";
  return read_scenario(*read_yaml(Source{"s.yaml", text}), "s.yaml", ".");
}

TEST(Stack, EveryStrategyHasAUsualOneThatIsShipped) {
  for (const StrategyInfo& info : strategies()) EXPECT_THAT(shipped_stacks(), testing::Contains(info.stack)) << info.name;
  EXPECT_EQ(with_stack("", "fsdp2")->stack->name, "torchtitan");
  EXPECT_EQ(with_stack("", "zero3")->stack->name, "deepspeed");
  EXPECT_EQ(with_stack("stack: megatron", "zero3")->stack->name, "megatron");
}

TEST(Stack, EveryShippedOneReadsBackAndGivesTheOriginOfEveryValue) {
  for (const std::string& name : shipped_stacks()) {
    const auto source = read_source(shipped_folder() + "/stacks/" + name + ".yaml");
    const auto stack = read_stack(*read_yaml(*source));
    ASSERT_TRUE(stack) << stack.error().text();
    EXPECT_EQ(stack->name, name);
    const auto again = read_stack(*read_yaml(Source{"again", to_yaml(*stack)}));
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_EQ(to_yaml(*again), to_yaml(*stack));
    EXPECT_NE(origin_of(*stack, "host.kernel"), "") << name;
    EXPECT_NE(origin_of(*stack, "fused"), "") << name;
    EXPECT_NE(origin_of(*stack, "rates"), "") << name;
    for (std::size_t i = 0; i < host_call_count; ++i)
      if (stack->calls[i] > Seconds{}) {
        EXPECT_NE(origin_of(*stack, "host." + std::string(host_call_names[i])), "") << name << " " << host_call_names[i];
      }
  }
}

TEST(Stack, SingleValuesGoOverABaseOrTheUsualOne) {
  const auto changed = with_stack("stack: {base: transformers, host: {kernel: 7 us}, fused: {norms: true}}");
  ASSERT_TRUE(changed) << changed.error().text();
  EXPECT_EQ(changed->stack->name, "transformers");
  EXPECT_EQ(changed->stack->kernel, microseconds(7));
  EXPECT_TRUE(changed->training.fused.norms);
  EXPECT_EQ(origin_of(*changed->stack, "host.kernel"), "set by the scenario");
  const auto usual = with_stack("stack: {rates: {products: 0.5}}", "zero2");
  ASSERT_TRUE(usual) << usual.error().text();
  EXPECT_EQ(usual->stack->name, "deepspeed");
  EXPECT_DOUBLE_EQ(usual->stack->rates.products, 0.5);
}

TEST(Stack, AnUnknownNameIsTheUsersMistake) {
  const auto unknown = with_stack("stack: torchtitam");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().text(), testing::AllOf(testing::HasSubstr("torchtitam"), testing::HasSubstr("torchtitan")));
  EXPECT_FALSE(with_stack("stack: {host: {kernal: 7 us}}"));
  EXPECT_FALSE(with_stack("stack: {rates: {products: 0}}"));
  EXPECT_FALSE(with_stack("stack: no-such-file.yaml"));
}

TEST(Stack, FusedKernelsTakeLessWork) {
  const auto work = [](const Scenario& s) {
    Work sum;
    for (const Module& m : s.model->types[1].modules) sum += m.forward;
    return sum;
  };
  const Work python = work(*with_stack("stack: transformers")), fused = work(*with_stack("stack: megatron"));
  EXPECT_LT(fused.kernels, python.kernels / 2);
  EXPECT_LT(fused.memory, python.memory);
  EXPECT_EQ(fused.flops(), python.flops());
}

}  // namespace
}  // namespace shardsim
