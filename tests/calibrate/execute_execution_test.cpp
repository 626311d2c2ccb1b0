// SPDX-License-Identifier: Apache-2.0
// Strategies on real memory and a real network: bytes and peaks exact, losses and gradients those of one rank.
#include <gtest/gtest.h>

#include "calibrate/execute/execution.hpp"
#include "execute_job.hpp"

namespace shardsim::execute {
namespace {

struct ExecutionCase {
  std::string strategy;
  Semantics semantics;
  std::int64_t ranks;
  std::int32_t micro_batches;
  bool mixed;
};

std::vector<ExecutionCase> execution_cases() {
  std::vector<ExecutionCase> all;
  for (const char* strategy : {"naive_dp", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"})
    for (Semantics semantics : {Semantics::framework, Semantics::textbook})
      for (std::int64_t ranks : {1, 2, 3, 4})
        for (std::int32_t micro_batches : {1, 3})
          all.push_back({strategy, semantics, ranks, micro_batches, (ranks + micro_batches) % 2 == 0});
  return all;
}

std::string execution_case_name(const testing::TestParamInfo<ExecutionCase>& info) {
  const ExecutionCase& c = info.param;
  return c.strategy + (c.semantics == Semantics::textbook ? "Textbook" : "Framework") + "N" + std::to_string(c.ranks) + "G" +
         std::to_string(c.micro_batches) + (c.mixed ? "Mixed" : "Fp32");
}

test::OwnedJob job_of(const ExecutionCase& c) {
  test::OwnedJob job = test::small_job(AttentionKind::flash, c.strategy, c.semantics);
  job.training.gradient_accumulation_steps = c.micro_batches;
  if (c.mixed) test::use_mixed_precision(job);
  job.world_size = job.gpus_per_node = c.ranks;
  return job;
}

class ExecutionTest : public testing::TestWithParam<ExecutionCase> {};

TEST_P(ExecutionTest, MeasuredIsPredicted) {
  const ExecutionResult result = execute_local(job_of(GetParam()), {.steps = 2});
  EXPECT_EQ(result.sent.measured, result.sent.predicted);
  EXPECT_EQ(result.control.measured, result.control.predicted);
  EXPECT_EQ(result.peak.measured, result.peak.predicted);
  EXPECT_LE(result.loss.largest_difference, result.loss.tolerance);
  EXPECT_LE(result.gradient.largest_difference, result.gradient.tolerance);
  EXPECT_TRUE(result.same_parameters);
  EXPECT_NE(result.losses.front(), result.losses.back());
  EXPECT_TRUE(result.agree());
}

INSTANTIATE_TEST_SUITE_P(Strategies, ExecutionTest, testing::ValuesIn(execution_cases()), execution_case_name);

// The others that the executor can run, in the semantics that they have.
std::vector<ExecutionCase> further_cases() {
  std::vector<ExecutionCase> all;
  for (const char* strategy : {"zero_redundancy", "mics", "megatron", "olmo_ddp"})
    for (std::int64_t ranks : {1, 2, 3, 4})
      for (std::int32_t micro_batches : {1, 3})
        all.push_back({strategy, Semantics::framework, ranks, micro_batches, (ranks + micro_batches) % 2 == 0});
  return all;
}

INSTANTIATE_TEST_SUITE_P(FurtherStrategies, ExecutionTest, testing::ValuesIn(further_cases()), execution_case_name);

TEST(Execution, HybridShardingReducesWithinAndAcrossReplicas) {
  for (Semantics semantics : {Semantics::framework, Semantics::textbook})
    for (std::int32_t micro_batches : {1, 3})
      for (bool mixed : {false, true}) {
        test::OwnedJob job = job_of({"fsdp2", semantics, 4, micro_batches, mixed});
        job.strategy.options.set("replicate", std::int64_t{2});
        const ExecutionResult result = execute_local(job, {.steps = 2});
        EXPECT_EQ(result.sent.measured, result.sent.predicted);
        EXPECT_TRUE(result.agree()) << micro_batches << (mixed ? " mixed" : " fp32");
      }
}

class TwentyStepsTest : public testing::TestWithParam<const char*> {};

TEST_P(TwentyStepsTest, LossesStayThoseOfOneRank) {
  test::OwnedJob job = job_of(
      {GetParam() == std::string("hsdp") ? "fsdp2" : GetParam(), Semantics::framework, GetParam() == std::string("hsdp") ? 4 : 3, 1, true});
  if (GetParam() == std::string("hsdp")) job.strategy.options.set("replicate", std::int64_t{2});
  const ExecutionResult result = execute_local(job, {.steps = 20});
  EXPECT_EQ(result.losses.size(), 20u);
  EXPECT_TRUE(result.agree()) << "loss " << result.loss.largest_difference << ", gradient " << result.gradient.largest_difference;
  EXPECT_LT(result.losses.back(), result.losses.front() - 0.2);
}

INSTANTIATE_TEST_SUITE_P(Strategies, TwentyStepsTest,
                         testing::Values("naive_dp", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2", "hsdp", "zero_redundancy", "mics",
                                         "megatron", "olmo_ddp"),
                         [](const auto& p) { return std::string(p.param); });

TEST(Execution, TheSameRunTwiceGivesTheSameBits) {
  const test::OwnedJob job = job_of({"fsdp2", Semantics::framework, 3, 1, true});
  const ExecutionResult first = execute_local(job), second = execute_local(job);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.gradient.largest_difference, second.gradient.largest_difference);
}

TEST(Execution, RecomputedActivationsGiveTheSameBits) {
  test::OwnedJob job = job_of({"fsdp2", Semantics::framework, 2, 1, true});
  const ExecutionResult kept = execute_local(job);
  for (Checkpointing kind : {Checkpointing::core_attention, Checkpointing::selective_ops, Checkpointing::full}) {
    job.training.checkpointing.kind = kind;
    const ExecutionResult again = execute_local(job);
    EXPECT_TRUE(again.agree());
    EXPECT_EQ(again.losses, kept.losses);
  }
}

// Issue: what a strategy shards is never held whole.
TEST(Execution, MemoryFallsAsTheStrategySays) {
  const auto at_peak = [](const char* strategy, Category category) {
    const ExecutionResult result = execute_local(job_of({strategy, Semantics::textbook, 4, 1, true}), {.steps = 1});
    return result.peak_by_category.front()[static_cast<std::size_t>(category)].value();
  };
  const std::int64_t whole_states = at_peak("ddp", Category::optimizer_states);
  EXPECT_NEAR(static_cast<double>(at_peak("zero1", Category::optimizer_states)) / static_cast<double>(whole_states), 0.25, 0.01);
  const std::int64_t whole_parameters = at_peak("zero2", Category::parameters);
  EXPECT_NEAR(static_cast<double>(at_peak("zero3", Category::parameters)) / static_cast<double>(whole_parameters), 0.25, 0.01);
}

/// Eight layers, so that one layer is little of the whole.
ExecutionResult run_deep(const char* strategy, Semantics semantics) {
  test::OwnedJob job = job_of({strategy, semantics, 4, 1, true});
  job.owner = test::small_llama(job.training, 8);
  job.model = job.owner.get();
  return execute_local(job, {.steps = 1});
}

std::int64_t highest(const ExecutionResult& result, Category category) {
  return result.highest_by_category.front()[static_cast<std::size_t>(category)].value();
}

// The largest that gradients ever are is a quarter (the shard) and what one layer or bucket adds, never all of them.
TEST(Execution, FullGradientsAreNeverAllAlive) {
  const ExecutionResult whole = run_deep("ddp", Semantics::textbook);
  const std::int64_t full = highest(whole, Category::gradients) + highest(whole, Category::unsharded_gradients);
  for (const auto& [strategy, semantics] : {std::pair{"zero2", Semantics::textbook},
                                            {"zero3", Semantics::textbook},
                                            {"fsdp1", Semantics::framework},
                                            {"fsdp2", Semantics::framework}}) {
    const ExecutionResult sharded = run_deep(strategy, semantics);
    EXPECT_TRUE(sharded.agree()) << strategy;
    EXPECT_GT(highest(sharded, Category::unsharded_gradients), 0) << strategy;
    EXPECT_LT(highest(sharded, Category::unsharded_gradients), full / 2) << strategy;
  }
}

// Two layers (the one computed with and the one prefetched) and the root unit at most, of eight layers.
TEST(Execution, FullParametersAreNeverAllAlive) {
  const std::int64_t full = highest(run_deep("ddp", Semantics::textbook), Category::parameters);
  for (const auto& [strategy, semantics] :
       {std::pair{"zero3", Semantics::textbook}, {"fsdp1", Semantics::framework}, {"fsdp2", Semantics::framework}}) {
    const ExecutionResult sharded = run_deep(strategy, semantics);
    EXPECT_TRUE(sharded.agree()) << strategy;
    EXPECT_GT(highest(sharded, Category::unsharded_parameters), 0) << strategy;
    EXPECT_LT(highest(sharded, Category::unsharded_parameters), full / 2) << strategy;
  }
}

// A flipped bit of a payload: the bytes still count right, the values do not.
TEST(Execution, AWrongByteOnTheWireIsFound) {
  for (std::int64_t byte : {101, 5'001, 20'003}) {
    ExecutionOptions options{.steps = 2};
    options.network.fault = WireFault{1, byte};
    const ExecutionResult result = execute_local(job_of({"ddp", Semantics::framework, 2, 1, true}), options);
    EXPECT_TRUE(result.sent.equal()) << byte;
    EXPECT_FALSE(result.agree()) << byte;
  }
}

TEST(Execution, AKilledRankIsNamed) {
  ExecutionOptions options{.steps = 3};
  options.kill = ExecutionOptions::Kill{2, 1};
  try {
    (void)execute_local(job_of({"fsdp2", Semantics::framework, 3, 1, true}), options);
    FAIL() << "a rank was killed";
  } catch (const EnvironmentError& error) { EXPECT_STREQ(error.what(), "rank 2 was killed by signal 9; the others were ended"); }
}

TEST(Execution, RefusesWhatItCannotRun) {
  test::OwnedJob job = job_of({"ddp", Semantics::framework, 2, 1, true});
  job.training.optimizer.kind = OptimizerKind::muon;
  job.training.optimizer.clip_grad_norm = 1.0;
  EXPECT_EQ(cannot_execute(job).size(), 2u);
}

}  // namespace
}  // namespace shardsim::execute
