// SPDX-License-Identifier: Apache-2.0
// The examples of docs/questions.md give the answers that they promise.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "studies/compare/comparison.hpp"
#include "studies/compare/variant.hpp"
#include "studies/plan/options.hpp"
#include "studies/plan/planner.hpp"
#include "studies/simulate/simulation_job.hpp"
#include "studies/sweep/rows.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;

std::string question(const std::string& name) { return SHARDSIM_SOURCE_DIR "/scenarios/questions/" + name + ".yaml"; }
Scenario load(const std::string& name) { return value_or_throw(load_scenario(question(name))); }

TEST(PlanQuestions, EveryExampleIsInTheDocumentation) {
  std::ifstream in(SHARDSIM_SOURCE_DIR "/docs/questions.md");
  std::ostringstream page;
  page << in.rdbuf();
  int examples = 0;
  for (const auto& entry : fs::directory_iterator(SHARDSIM_SOURCE_DIR "/scenarios/questions")) {
    const std::string name = entry.path().stem().string();
    const bool base_of_a_sweep = fs::exists(question("sweep-" + name));
    EXPECT_TRUE(base_of_a_sweep || page.str().find("scenarios/questions/" + name + ".yaml") != std::string::npos) << name;
    if (name.starts_with("sweep-")) continue;
    EXPECT_FALSE(load(name).expect.empty()) << name;
    ++examples;
  }
  EXPECT_EQ(examples, 10);
}

// Case U044: 16 x 80 GB is out of memory, 32 hold it.
TEST(PlanQuestions, SeventyBillionParametersNeedThirtyTwoGpus) {
  const Plan plan = make_plan(load("fewest-gpus"));
  EXPECT_EQ(plan.minimum_gpus, 32);
  EXPECT_NE(plan.answers[1].why.find("on 16 GPUs"), std::string::npos) << plan.answers[1].why;
}

// Case U046: DDP holds 93.4 GB of frozen weights; sharded they are 11.7 GB.
TEST(PlanQuestions, FrozenExpertsFitOnlyWhenSharded) {
  const Scenario base = load("does-it-fit");
  EXPECT_FALSE(simulate_scenario(base).memory.fits);
  EXPECT_TRUE(simulate_scenario(value_or_throw(vary(base, {"strategy.name=fsdp2"}))).memory.fits);
}

// The verdict of case U008: with much accumulation over a slow path DDP beats FSDP.
TEST(PlanQuestions, AccumulationOverSlowLinksIsForDdp) {
  const Comparison comparison = compare_strategies(load("fastest-strategy"), {"fsdp2", "fsdp1", "ddp", "naive_dp"}, 4);
  ASSERT_EQ(comparison.results.size(), 4U);
  EXPECT_EQ(comparison.results.front().schedule->strategy, "ddp");
  EXPECT_GT(comparison.results.back().step.time / comparison.results.front().step.time, 2);
}

TEST(PlanQuestions, TheCliffIsAtTheNodeBoundary) {
  const Scaling scaling = scaling_study(load("does-not-scale"), 1, 64);
  ASSERT_TRUE(scaling.cliff.has_value());
  EXPECT_EQ(scaling.points[*scaling.cliff].nodes, 2);
}

TEST(PlanQuestions, MoneyIsGpuHoursTimesThePrice) {
  const Plan plan = make_plan(load("days-and-money"));
  ASSERT_TRUE(plan.cost && plan.time);
  EXPECT_NEAR(*plan.cost->economics.cost, plan.cost->economics.gpu_hours * 2.5, 1e-6);
  EXPECT_LE(plan.time->economics.wall, plan.cost->economics.wall);
  EXPECT_EQ(plan.time->evaluated.gpus(), 256);
}

TEST(PlanQuestions, TheBestBucketIsTheFastestOfThoseThatWereTried) {
  const Scenario base = load("bucket-values");
  const TunedOptions tuned = tune_options(base);
  ASSERT_EQ(tuned.tried.size(), 1U);
  const TriedOption& bucket = tuned.tried.front();
  EXPECT_EQ(bucket.name, "bucket_cap_mb");
  ASSERT_EQ(bucket.values.size(), 8U);
  const auto time = [&](const std::string& value) {
    return simulate_scenario(value_or_throw(vary(base, {"strategy.bucket_cap_mb=" + value}))).step.time;
  };
  EXPECT_EQ(tuned.before, time("200"));
  EXPECT_EQ(bucket.best, "25");
  EXPECT_EQ(tuned.after, time(bucket.best));
  for (const std::string& value : bucket.values) EXPECT_LE(tuned.after, time(value) + tuned.before * 0.001) << value;
  EXPECT_DOUBLE_EQ(tuned.saved(), 1 - tuned.after / tuned.before);
  EXPECT_EQ(tuned.assignments(), std::vector<std::string>{"strategy.bucket_cap_mb=" + bucket.best});
}

TEST(PlanQuestions, OptionsAreTriedOnTheBestOfThoseBeforeThem) {
  const Scenario base =
      value_or_throw(vary(load("does-not-scale"), {"strategy={name: fsdp2}", "cluster.nodes=4", "cluster.nic_bandwidth=25 Gbit/s"}));
  const TunedOptions tuned = tune_options(base);
  std::vector<std::string> names;
  for (const TriedOption& option : tuned.tried) names.push_back(option.name);
  EXPECT_EQ(names, (std::vector<std::string>{"replicate", "reshard_after_forward", "backward_prefetch", "forward_prefetch"}));
  EXPECT_EQ(tuned.after, simulate_scenario(value_or_throw(vary(base, tuned.assignments()))).step.time);
  EXPECT_GT(tuned.saved(), 0.1);  // shards within a node spare a slow network
  double sum = 0;
  for (const TriedOption& option : tuned.tried) sum += option.saved;
  EXPECT_NEAR(sum, tuned.saved(), 1e-12);
}

TEST(PlanQuestions, SweepsOfTheExamplesRun) {
  for (const std::string name : {"sweep-bucket-values", "sweep-price-of-options"}) {
    const auto sweep = load_sweep(question(name), simulate_columns());
    ASSERT_TRUE(sweep.has_value()) << sweep.error().text();
    for (std::uint64_t row = 0; row < sweep->size; ++row) {
      const std::string line = SweepRows(*sweep, RowFormat::json_lines).row(row).line;
      EXPECT_NE(line.find("\"error\":null"), std::string::npos) << line;
    }
  }
}

}  // namespace
}  // namespace shardsim
