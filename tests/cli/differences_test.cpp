// SPDX-License-Identifier: Apache-2.0
// cluster.differences, from the scenario to the step: one slow rank slows everyone by what it is slower, folding changes nothing.
#include <gtest/gtest.h>

#include "sim/engine/unlike_ranks.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

SimulationResult step(const std::string& differences, const std::string& strategy = "fsdp2", int nodes = 1) {
  const std::string text = "model: {preset: gpt2}\ncluster:\n  profile: clusters/h100-sxm.yaml\n  nodes: " + std::to_string(nodes) + "\n" +
                           (differences.empty() ? "" : "  differences: " + differences + "\n") +
                           "training: {sequence_length: 1024, micro_batch_size: 32}\nstrategy: {name: " + strategy + "}\n";
  return simulate_scenario(value_or_throw(read_scenario(value_or_throw(read_yaml({"s.yaml", text})), "s.yaml", ".")));
}

std::string errors(const std::string& differences) {
  try {
    (void)step(differences);
  } catch (const InputError& error) { return error.what(); }
  return {};
}

TEST(Differences, AFactorOfOneChangesNothing) {
  EXPECT_EQ(step("[{ranks: [3], slow: 1.0}]").step.time, step("").step.time);
  EXPECT_EQ(step("[{ranks: [3], slow: 1.0}]").differences, nullptr);
}

// Compute bound: the slow rank's kernels take 20 % longer and everyone waits for them; communication and launches stay.
TEST(Differences, ASlowRankSetsThePaceOfAll) {
  const SimulationResult alike = step(""), slow = step("[{ranks: [3], slow: 1.2}]");
  const double ratio = slow.step.time / alike.step.time;
  EXPECT_GT(ratio, 1.1);
  EXPECT_LT(ratio, 1.21);
  ASSERT_NE(slow.differences, nullptr);
  EXPECT_EQ(slow.differences->class_count, 2);
  EXPECT_EQ(slow.differences->classes.front().first, 3);  // nobody waits less than the one that all wait for
  EXPECT_EQ(slow.differences->classes.front().ranks, 1);
  EXPECT_EQ(slow.differences->classes.back().ranks, 7);
  EXPECT_EQ(slow.differences->alike.seconds(), alike.step.time);
  EXPECT_EQ(slow.traffic.total, alike.traffic.total);
  EXPECT_EQ(slow.memory.peak, alike.memory.peak);
}

TEST(Differences, WhichRankAndHowManyDoNotMatterInOneGroup) {
  const Seconds one = step("[{ranks: [3], slow: 1.2}]").step.time;
  EXPECT_EQ(step("[{ranks: 6, slow: 1.2}]").step.time, one);
  EXPECT_EQ(step("[{ranks: [0, 6], slow: 1.2}]").step.time, one);
  EXPECT_EQ(step("[{nodes: [0], slow: 1.2}]").step.time, one);
}

// Ranks that differ by nothing that shows are told apart (a factor of 1 + 1e-12 moves no picosecond): the unfolded replay of eight programs
// comes to what the folded one of two does, under strategies with one group and with two.
TEST(Differences, FoldedEqualsUnfolded) {
  for (const char* strategy : {"ddp", "fsdp2", "zero3", "fsdp2, replicate: 2", "megatron"}) {
    std::string unfolded = "[";
    for (int rank = 0; rank < 16; ++rank)
      unfolded +=
          "{ranks: " + std::to_string(rank) + ", slow: " + (rank == 5 ? "1.3" : "1.00000000000000" + std::to_string(10 + rank)) + "}, ";
    unfolded += "]";
    const SimulationResult folded = step("[{ranks: 5, slow: 1.3}]", strategy, 2), apart = step(unfolded, strategy, 2);
    EXPECT_LT(folded.differences->class_count, 8) << strategy;
    EXPECT_GE(apart.differences->class_count, 10) << strategy;
    EXPECT_NEAR(apart.step.time / folded.step.time, 1, 1e-9) << strategy;
  }
}

TEST(Differences, ADegradedNicSlowsCollectivesBetweenNodesOnly) {
  EXPECT_EQ(step("[{ranks: 3, nic: 0.5}]", "ddp", 1).step.time, step("", "ddp", 1).step.time);
  const SimulationResult alike = step("", "ddp", 2), degraded = step("[{ranks: 3, nic: 0.1}]", "ddp", 2);
  EXPECT_GT(degraded.step.communication, alike.step.communication * 2);
}

TEST(Differences, SpreadIsTheSeeds) {
  const std::string spread = "[{spread: {compute: 5 %, collectives: 5 %}, seed: ";
  const Seconds first = step(spread + "1}]").step.time;
  EXPECT_EQ(step(spread + "1}]").step.time, first);
  EXPECT_NE(step(spread + "2}]").step.time, first);
  EXPECT_GT(first, step("").step.time * 1.02);  // the slowest of eight
}

TEST(Differences, WhatIsNotThereIsRefusedAtItsPlace) {
  EXPECT_NE(errors("[{ranks: [8], slow: 1.2}]").find("s.yaml:5:"), std::string::npos);
  EXPECT_NE(errors("[{ranks: [3], slou: 1.2}]").find("did you mean 'slow'"), std::string::npos);
  EXPECT_NE(errors("[{ranks: [3]}]").find("allowed: slow, nic, host, profile"), std::string::npos);
  EXPECT_NE(errors("[{slow: 2}]").find("one of them"), std::string::npos);
  EXPECT_NE(errors("[{ranks: 3, nic: 2}]").find("nic"), std::string::npos);
  EXPECT_NE(errors("[{share: 120 %, slow: 2}]").find("is not a share"), std::string::npos);
  EXPECT_NE(errors("{ranks: 3}").find("is a list"), std::string::npos);
}

}  // namespace
}  // namespace shardsim
