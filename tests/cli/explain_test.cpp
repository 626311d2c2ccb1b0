// SPDX-License-Identifier: Apache-2.0
// simulate --explain: which terms fall with the number of GPUs, and what would lower the peak, each simulated.
#include <gtest/gtest.h>

#include <algorithm>

#include "reports/table.hpp"
#include "studies/compare/config_lines.hpp"
#include "studies/compare/variant.hpp"
#include "studies/compare/what_if.hpp"
#include "studies/simulate/simulate_json.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

Scenario job(const std::string& strategy, const std::string& capacity) {
  const std::string text =
      "model: {preset: tinyllama-1.1b}\ncluster: {profile: clusters/a100-sxm-80.yaml, gpus_per_node: 4, capacity: " + capacity +
      "}\ntraining: {sequence_length: 2048, micro_batch_size: 2}\nstrategy: {name: " + strategy + "}\n";
  return value_or_throw(read_scenario(value_or_throw(read_yaml({"job.yaml", text})), "job.yaml", shipped_folder()));
}

const MemoryTerm& term(const MemoryExplanation& e, Category category) {
  return *std::find_if(e.terms.begin(), e.terms.end(), [&](const MemoryTerm& t) { return t.category == category; });
}

TEST(Explain, StatesFallWithTheRanksAndLogitsDoNot) {
  const Scenario base = job("fsdp2", "80 GiB");
  const SimulationResult now = simulate_scenario(base);
  const MemoryExplanation e = explain_memory(base, now);
  EXPECT_TRUE(term(e, Category::optimizer_states).falls());
  EXPECT_NEAR(static_cast<double>(term(e, Category::optimizer_states).on_twice_the_ranks->value()),
              static_cast<double>(now.memory.at_peak[static_cast<std::size_t>(Category::optimizer_states)].value()) / 2, 1e6);
  EXPECT_FALSE(term(e, Category::logits).falls());
  EXPECT_TRUE(std::is_sorted(e.terms.begin(), e.terms.end(), [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes > b.bytes; }));
  EXPECT_FALSE(term(explain_memory(job("ddp", "80 GiB"), simulate_scenario(job("ddp", "80 GiB"))), Category::optimizer_states).falls());
}

// 1.1e9 parameters of 16 bytes and more do not fit into 24 GB beside the rest; sharded they do.
TEST(Explain, NamesTheCheapestChangeThatFits) {
  const Scenario base = job("ddp", "24 GB");
  const SimulationResult now = simulate_scenario(base);
  ASSERT_FALSE(now.memory.fits);
  const MemoryExplanation e = explain_memory(base, now);
  ASSERT_TRUE(e.cheapest.has_value());
  const MemoryChange& best = e.changes[*e.cheapest];
  EXPECT_TRUE(best.fits);
  for (std::size_t i = 0; i < *e.cheapest; ++i) EXPECT_FALSE(e.changes[i].fits) << e.changes[i].text;
  const SimulationResult then = simulate_scenario(value_or_throw(vary(base, best.assignments)));
  EXPECT_EQ(then.memory.device_peak, best.device_peak);
  EXPECT_NEAR(best.time, now.step.tokens_per_second_per_gpu / then.step.tokens_per_second_per_gpu - 1, 1e-9);
}

TEST(Explain, OffersNothingThatIsThereAlready) {
  const Scenario base =
      value_or_throw(vary(job("fsdp2", "80 GiB"), {"training.micro_batch_size=1", "training.activation_checkpointing=full",
                                                   "training.loss=fused", "training.allocator={expandable_segments: true}"}));
  std::vector<std::string> texts;
  for (const Change& change : memory_changes(base)) texts.push_back(change.text);
  EXPECT_EQ(texts, (std::vector<std::string>{"embedding and head wrapped by themselves", "a fused optimizer", "zero3", "twice the nodes",
                                             "CPU offload"}));
}

TEST(Explain, IsInTheReports) {
  const Scenario base = job("fsdp2", "80 GiB");
  SimulationResult result = simulate_scenario(base);
  EXPECT_EQ(simulate_json(result).find("explanation"), nullptr);
  result.explanation = std::make_shared<const MemoryExplanation>(explain_memory(base, result));
  const Json json = simulate_json(result);
  EXPECT_EQ(*json.find("explanation.headroom_bytes")->as<std::int64_t>(), (result.memory.capacity - result.memory.device_peak).value());
  EXPECT_NE(json.find("explanation.cheapest.change"), nullptr);
  EXPECT_NE(simulate_table(result).find("On twice the GPUs these fall:"), std::string::npos);
}

// Each as the line of the configuration that the job is run by.
TEST(Explain, OffersTheLibrarysOwnRemedies) {
  const auto offered = [](const std::string& strategy, const std::string& option) {
    const Scenario base = value_or_throw(vary(job("ddp", "80 GiB"), {"strategy={name: " + strategy + "}"}));
    const auto changes = memory_changes(base);
    return std::any_of(changes.begin(), changes.end(),
                       [&](const Change& c) { return c.assignments.front().find(option) != std::string::npos; });
  };
  EXPECT_TRUE(offered("ddp", "gradient_as_bucket_view=true"));
  EXPECT_TRUE(offered("fsdp1, limit_all_gathers: false", "limit_all_gathers=true"));
  EXPECT_FALSE(offered("fsdp1", "limit_all_gathers"));
  EXPECT_TRUE(offered("zero2", "reduce_bucket_size=50000000"));
  EXPECT_TRUE(offered("fsdp2", "wrap=torchtitan"));
  const Scenario zero = job("zero2", "80 GiB");
  EXPECT_EQ(config_lines(zero, {"strategy.reduce_bucket_size=50000000"}),
            std::vector<std::string>{"\"zero_optimization\": {\"reduce_bucket_size\": 50000000}"});
  EXPECT_EQ(config_lines(job("ddp", "80 GiB"), {"strategy.gradient_as_bucket_view=true"}),
            std::vector<std::string>{"DistributedDataParallel(..., gradient_as_bucket_view=True)"});
  EXPECT_EQ(config_lines(job("fsdp2", "80 GiB"), {"strategy.reshard_after_forward=false", "strategy.unknown=1"}),
            std::vector<std::string>{"[parallelism] fsdp_reshard_after_forward = \"never\""});
}

TEST(CheckpointBlock, IsReportedAndCheckedAgainstTheStrategy) {
  const Scenario base = value_or_throw(vary(job("fsdp2", "80 GiB"), {"checkpoint={load_world_size: 8, storage_bandwidth: 1 GB/s}"}));
  const SimulationResult result = simulate_scenario(base);
  const Json json = simulate_json(result);
  EXPECT_EQ(*json.find("checkpoint.total_bytes")->as<std::int64_t>(), 12 * base.model->total().value());
  EXPECT_EQ(*json.find("checkpoint.load.world_size")->as<std::int64_t>(), 8);
  EXPECT_NE(simulate_table(result).find("A checkpoint (dcp)"), std::string::npos);
  EXPECT_NEAR(result.checkpoint->save.base(), 12e-9 * static_cast<double>(base.model->total().value()), 1e-6);
  EXPECT_FALSE(vary(base, {"checkpoint.format=deepspeed"}));
  EXPECT_FALSE(vary(base, {"checkpoint.formt=dcp"}));
}

}  // namespace
}  // namespace shardsim
