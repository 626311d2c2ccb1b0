// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "studies/plan/search.hpp"

namespace shardsim {
namespace {

/// What a made-up candidate comes to, coded in its fields: time in milliseconds in `micro_batch`, memory in `accumulation`.
SimulationResult made_up(const Candidate& c, Bytes capacity) {
  SimulationResult result;
  result.step.time = Seconds{static_cast<double>(c.micro_batch) * 1e-3};
  result.memory.device_peak = Bytes{c.accumulation};
  result.memory.fits = result.memory.device_peak <= capacity;
  return result;
}

struct World {
  std::vector<Candidate> candidates;
  std::vector<double> slack;  ///< bounds are so much below the truth
};

World random_world(unsigned seed) {
  std::mt19937 random(seed);
  World world;
  for (int i = 0; i < 300; ++i) {
    Candidate c;
    c.nodes = 1 << std::uniform_int_distribution<int>(0, 5)(random);
    c.gpus_per_node = 8;
    c.micro_batch = std::uniform_int_distribution<std::int64_t>(1, 2000)(random) + 4000 / c.nodes;
    c.accumulation = std::uniform_int_distribution<std::int64_t>(1, 150)(random);
    c.strategy = std::to_string(i);
    world.candidates.push_back(c);
    world.slack.push_back(std::uniform_real_distribution<double>(0.2, 1.0)(random));
  }
  return world;
}

SearchModel model_of(const World& world) {
  SearchModel model;
  model.capacity = Bytes{100};
  model.bound = [&world](const Candidate& c) {
    const double slack = world.slack[static_cast<std::size_t>(std::stoi(c.strategy))];
    return LowerBound{Seconds{static_cast<double>(c.micro_batch) * 1e-3 * slack},
                      Bytes{static_cast<std::int64_t>(static_cast<double>(c.accumulation) * slack)}};
  };
  model.evaluate = [](const Candidate& c) -> std::optional<SimulationResult> {
    if (c.micro_batch % 17 == 0) return std::nullopt;  // the library refuses some
    return made_up(c, Bytes{100});
  };
  return model;
}

TEST(PlanSearch, PruningKeepsEveryOptimumOfExhaustiveSearch) {
  for (unsigned seed = 1; seed <= 50; ++seed) {
    const World world = random_world(seed);
    const SearchModel model = model_of(world);
    const SearchResult all = search(world.candidates, model, false);
    const SearchResult pruned = search(world.candidates, model, true);
    const Best want = best_of(all.fitting), got = best_of(pruned.fitting);
    ASSERT_NE(got.time, nullptr);
    EXPECT_EQ(got.time->time(), want.time->time());
    EXPECT_EQ(got.cost->gpu_seconds(), want.cost->gpu_seconds());
    EXPECT_EQ(got.gpus->gpus(), want.gpus->gpus());
    EXPECT_EQ(got.gpus->time(), want.gpus->time());
    const auto front = pareto_front(pruned.fitting), whole = pareto_front(all.fitting);
    ASSERT_EQ(front.size(), whole.size());
    for (std::size_t i = 0; i < front.size(); ++i) {
      EXPECT_EQ(front[i]->time(), whole[i]->time());
      EXPECT_EQ(front[i]->gpus(), whole[i]->gpus());
    }
    EXPECT_GT(pruned.pruned, 50);
    EXPECT_EQ(pruned.evaluated + pruned.pruned + pruned.refused, 300);
    EXPECT_EQ(all.pruned, 0);
  }
}

TEST(PlanSearch, TheFrontGetsFasterWithEveryGpu) {
  const World world = random_world(7);
  const auto found = search(world.candidates, model_of(world));
  const auto front = pareto_front(found.fitting);
  ASSERT_GE(front.size(), 3U);
  for (std::size_t i = 1; i < front.size(); ++i) {
    EXPECT_GT(front[i]->gpus(), front[i - 1]->gpus());
    EXPECT_LT(front[i]->time(), front[i - 1]->time());
  }
}

TEST(PlanSearch, NothingFittingLeavesTheLeanestForEachNumberOfGpus) {
  World world = random_world(3);
  SearchModel model = model_of(world);
  model.evaluate = [](const Candidate& c) -> std::optional<SimulationResult> { return made_up(c, Bytes{0}); };
  model.capacity = Bytes{0};
  const SearchResult found = search(world.candidates, model, false);
  EXPECT_TRUE(found.fitting.empty());
  EXPECT_EQ(found.too_large.size(), 6U);
  EXPECT_EQ(best_of(found.fitting).time, nullptr);
  EXPECT_TRUE(pareto_front(found.fitting).empty());
}

}  // namespace
}  // namespace shardsim
