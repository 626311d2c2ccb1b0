// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "reports/comparison_report.hpp"
#include "studies/compare/comparison.hpp"
#include "studies/compare/variant.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

/// A small model on two nodes behind a slow network: what gathers in every micro-batch loses, unless micro-batches are large.
Scenario slow_network(const std::string& strategy = "{name: fsdp2, reshard_after_forward: 'false'}") {
  const auto root =
      read_yaml({"compare.yaml",
                 "model: {hf_config: {model_type: llama, hidden_size: 1024, intermediate_size: 3072, num_hidden_layers: 8, "
                 "num_attention_heads: 8, num_key_value_heads: 8, vocab_size: 32000, max_position_embeddings: 4096, "
                 "tie_word_embeddings: false}}\n"
                 "cluster: {profile: clusters/h100-sxm.yaml, nodes: 2, gpus_per_node: 8, nics_per_node: 1, nic_bandwidth: 50 Gbit/s}\n"
                 "training: {sequence_length: 1024, micro_batch_size: 2, precision: mixed}\nstrategy: " +
                     strategy + "\n"});
  return value_or_throw(read_scenario(value_or_throw(root), "compare.yaml", ""));
}

TEST(Compare, FastestFirstAndOwnOptionsStayWithTheirStrategy) {
  const Comparison comparison = compare_strategies(slow_network(), {"naive_dp", "ddp", "fsdp1", "fsdp2"}, 2);
  ASSERT_EQ(comparison.results.size(), 4U);
  EXPECT_TRUE(std::is_sorted(comparison.results.begin(), comparison.results.end(),
                             [](const SimulationResult& a, const SimulationResult& b) { return a.step.time < b.step.time; }));
  for (const SimulationResult& result : comparison.results) {
    if (result.schedule->strategy != "fsdp2") continue;
    // Parameters stay after forward, so they are gathered once: 2 bytes, and 2 for the gradients, instead of 6.
    EXPECT_NEAR(result.traffic.psi_units, 4.0, 0.05);
  }
}

TEST(Compare, WhatCannotRunIsNamedWithItsReason) {
  const Comparison comparison =
      compare_strategies(slow_network("{name: fsdp2, semantics: textbook}"), {"fsdp2", "mics", "olmo_ddp", "ddp"}, 1);
  EXPECT_EQ(comparison.results.size() + comparison.not_run.size(), 4U);
  for (const NotRun& n : comparison.not_run) EXPECT_FALSE(n.why.empty()) << n.strategy;
  for (const SimulationResult& result : comparison.results) EXPECT_EQ(result.schedule->semantics, "textbook");
}

TEST(Compare, CrossoversAreWhereTheOrderChanges) {
  const Scenario base = slow_network();
  const Comparison comparison = compare_strategies(base, {"naive_dp", "ddp", "fsdp1", "fsdp2"}, 64);
  const auto time = [&](const std::string& strategy, std::int64_t micro_batch) {
    auto assignments = choose_strategy(base, strategy);
    assignments.push_back("training.micro_batch_size=" + std::to_string(micro_batch));
    return simulate_scenario(value_or_throw(vary(base, assignments))).step.time;
  };
  for (const Crossover& c : comparison.crossovers) {
    EXPECT_EQ(c.tokens_per_gpu, c.micro_batch * 1024);
    ASSERT_GT(c.micro_batch, 1);
    EXPECT_LE(time(c.from, c.micro_batch), time(c.below, c.micro_batch) * 1.005) << c.from << " " << c.below << " " << c.micro_batch;
    EXPECT_LE(time(c.below, c.micro_batch - 1), time(c.from, c.micro_batch - 1) * 1.005)
        << c.from << " " << c.below << " " << c.micro_batch;
  }
  EXPECT_TRUE(std::is_sorted(comparison.crossovers.begin(), comparison.crossovers.end(),
                             [](const Crossover& a, const Crossover& b) { return a.micro_batch < b.micro_batch; }));
}

// One line says which to take: the first in the order that fits, and what would be faster if it did.
TEST(Compare, TheVerdictIsTheFastestThatFits) {
  Comparison comparison = compare_strategies(slow_network(), {"naive_dp", "ddp", "fsdp1", "fsdp2"}, 1);
  const auto one_line = [&] {
    std::string text = comparison_table(comparison);
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  };
  const auto& name = [&](std::size_t i) -> const std::string& { return comparison.results[i].schedule->strategy; };
  EXPECT_NE(one_line().find("Fastest that fits: " + name(0) + ", "), std::string::npos) << one_line();
  EXPECT_NE(one_line().find("; the next, " + name(1) + ", is "), std::string::npos) << one_line();
  comparison.results[0].memory.fits = false;
  EXPECT_NE(one_line().find("Fastest that fits: " + name(1) + ", "), std::string::npos) << one_line();
  EXPECT_NE(one_line().find(name(0) + " would be faster but needs "), std::string::npos) << one_line();
  for (SimulationResult& result : comparison.results) result.memory.fits = false;
  EXPECT_NE(one_line().find("None fits: the leanest, "), std::string::npos) << one_line();
}

TEST(Compare, NamesOfStrategiesAreChecked) {
  EXPECT_EQ(strategy_list("ddp, fsdp2 "), (std::vector<std::string>{"ddp", "fsdp2"}));
  EXPECT_EQ(strategy_list("ddp,fsdp2,ddp"), (std::vector<std::string>{"ddp", "fsdp2"}));
  EXPECT_GE(strategy_list("all").size(), 7U);
  EXPECT_THROW((void)strategy_list("ddp,fsdp3"), InputError);
  EXPECT_THROW((void)strategy_list(""), InputError);
}

}  // namespace
}  // namespace shardsim
