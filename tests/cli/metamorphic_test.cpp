// SPDX-License-Identifier: Apache-2.0
// Laws that hold between simulations of random scenarios, drawn from a seed: nobody knows the right figures, but everybody knows how they
// must move. SHARDSIM_RANDOM_SCENARIOS sets how many are drawn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <sstream>

#include "shardsim/report.hpp"
#include "shardsim/simulate.hpp"
#include "sim/base/csv.hpp"
#include "strategies/strategy.hpp"

namespace shardsim {
namespace {

int scenarios_to_draw() {
  const char* wanted = std::getenv("SHARDSIM_RANDOM_SCENARIOS");
  return wanted == nullptr ? 40 : std::atoi(wanted);
}

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  std::string scenario() {
    const StrategyInfo& strategy = strategies()[below(strategies().size())];
    std::ostringstream text;
    text << "model: {preset: gpt2}\ncluster: {profile: " << word({"clusters/h100-sxm.yaml", "clusters/a100-sxm-80.yaml"})
         << ", nodes: " << word({"1", "2", "3", "4"}) << ", gpus_per_node: " << word({"2", "4", "8"})
         << "}\ntraining: {sequence_length: " << word({"64", "128", "256"}) << ", micro_batch_size: " << word({"1", "2", "3"})
         << ", gradient_accumulation_steps: " << word({"1", "2", "3"})
         << ", activation_checkpointing: " << word({"none", "full", "core_attention"}) << ", precision: " << word({"mixed", "pure-bf16"})
         << ", attention: " << word({"flash", "plain"}) << "}\nstrategy: {name: " << strategy.name
         << ", semantics: " << word({"framework", "framework", "textbook"}) << "}\n";
    return text.str();
  }

 private:
  std::size_t below(std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_); }
  std::string word(std::initializer_list<const char*> words) { return *(words.begin() + below(words.size())); }
  std::mt19937 random_;
};

/// Calls `law(text, result)` for each random scenario that its library can run.
template <class Law>
void for_random_scenarios(unsigned seed, Law law) {
  Draw draw(seed);
  int held = 0;
  for (int i = 0; i < scenarios_to_draw(); ++i) {
    const std::string text = draw.scenario();
    const auto scenario = parse(text);
    if (!scenario) continue;  // a combination that the library forbids
    SCOPED_TRACE(text);
    const auto result = simulate(*scenario);
    ASSERT_TRUE(result.has_value()) << result.error().message;
    law(text, *result);
    ++held;
  }
  EXPECT_GT(held, scenarios_to_draw() / 2);
}

SimulationResult with(const std::string& text, const std::vector<std::string>& overrides) {
  const auto scenario = parse(text, overrides);
  if (!scenario) throw std::runtime_error(scenario.error().message);
  auto result = simulate(*scenario);
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

TEST(Metamorphic, FasterLinksAndMemoryNeverMakeAStepSlower) {
  for_random_scenarios(1, [](const std::string& text, const SimulationResult& base) {
    for (const char* faster : {"cluster.nic_bandwidth=4 Tbit/s", "cluster.ring_bandwidth=4 TB/s", "cluster.memory_bandwidth=20 TB/s",
                               "cluster.host_link=1 TB/s", "cluster.kernel_launch=1 ns"}) {
      const SimulationResult other = with(text, {faster});
      EXPECT_LE(other.step.time.base(), base.step.time.base() * 1.001) << faster;
      EXPECT_EQ(other.traffic.total, base.traffic.total) << faster;
      EXPECT_EQ(other.memory.peak, base.memory.peak) << faster;
    }
  });
}

TEST(Metamorphic, MoreMemoryNeverMakesAJobStopFitting) {
  for_random_scenarios(2, [](const std::string& text, const SimulationResult& base) {
    bool fitted = false;
    for (const char* capacity : {"1 GiB", "2 GiB", "4 GiB", "8 GiB", "16 GiB", "640 GiB"}) {
      const SimulationResult other = with(text, {std::string("cluster.capacity=") + capacity});
      EXPECT_EQ(other.memory.peak, base.memory.peak) << capacity;
      EXPECT_TRUE(!fitted || other.memory.fits) << capacity;
      fitted = other.memory.fits;
    }
    EXPECT_TRUE(fitted);
  });
}

TEST(Metamorphic, WhatAJobNeedsIsWhatItRunsIn) {
  for_random_scenarios(3, [](const std::string& text, const SimulationResult&) {
    const SimulationResult tight = with(text, {"cluster.capacity=1500 MiB"});
    if (tight.memory.fits) return;
    const auto at = [&](double share) {
      const auto bytes = static_cast<std::int64_t>(static_cast<double>(tight.memory.device_peak.value()) * share);
      return with(text, {"cluster.capacity=" + std::to_string(bytes) + " B"}).memory.fits;
    };
    EXPECT_TRUE(at(1.005)) << to_text(tight.memory.device_peak);
    EXPECT_FALSE(at(0.9)) << to_text(tight.memory.device_peak);
  });
}

TEST(Metamorphic, AccumulationMultipliesTheWorkAndNeverLowersTheTraffic) {
  for_random_scenarios(4, [](const std::string& text, const SimulationResult&) {
    const SimulationResult one = with(text, {"training.gradient_accumulation_steps=1"}),
                           four = with(text, {"training.gradient_accumulation_steps=4"});
    EXPECT_NEAR(four.step.model_flops.base(), 4 * one.step.model_flops.base(), 1e-9 * four.step.model_flops.base());
    EXPECT_GE(four.traffic.total, one.traffic.total);
    EXPECT_GT(four.step.time, one.step.time);
    EXPECT_LE(four.step.time.base(), 4.001 * one.step.time.base());
  });
}

TEST(Metamorphic, OneGpuSendsNothing) {
  for_random_scenarios(5, [](const std::string& text, const SimulationResult& base) {
    const auto alone = parse(text, {"cluster.nodes=1", "cluster.gpus_per_node=1"});
    if (!alone) return;
    const auto result = simulate(*alone);
    ASSERT_TRUE(result.has_value()) << result.error().message;
    EXPECT_EQ(result->traffic.total, Bytes{});
    if (base.schedule->semantics == "framework") { EXPECT_EQ(result->traffic.psi_units, 0); }
  });
}

TEST(Metamorphic, HigherStagesHoldLess) {
  for_random_scenarios(6, [](const std::string& text, const SimulationResult&) {
    std::vector<Bytes> held;
    for (const char* stage : {"ddp", "zero1", "zero2", "zero3"}) {
      const auto scenario = parse(text, {std::string("strategy.name=") + stage, "strategy.semantics=textbook"});
      if (!scenario) return;
      held.push_back(sum(with(text, {std::string("strategy.name=") + stage, "strategy.semantics=textbook"}).memory.persistent));
    }
    EXPECT_TRUE(std::is_sorted(held.rbegin(), held.rend())) << testing::PrintToString(held.size());
  });
}

TEST(Metamorphic, AllReportsShowTheSameFigures) {
  for_random_scenarios(7, [](const std::string& text, const SimulationResult& result) {
    const Json json = simulate_json(result);
    EXPECT_EQ(json.text(), simulate_json(with(text, {})).text());  // the same input, the same bytes
    std::istringstream csv(simulate_csv(std::span(&result, 1)));
    std::string header, row;
    std::getline(csv, header);
    std::getline(csv, row);
    std::vector<std::string> fields, paths;
    for (const std::string& path : leaf_paths(json)) {
      paths.push_back(path);
      fields.push_back(csv_field(*json.find(path)));
    }
    EXPECT_EQ(header + "\n", csv_row(paths));
    EXPECT_EQ(row + "\n", csv_row(fields));
    const std::string table = simulate_table(result), page = html_page(simulate_page(result));
    for (const std::string& figure : {to_text_decimal(result.traffic.total), to_text(result.step.time)}) {
      EXPECT_THAT(table, testing::HasSubstr(figure));
      EXPECT_THAT(page, testing::HasSubstr(figure));
    }
  });
}

}  // namespace
}  // namespace shardsim
