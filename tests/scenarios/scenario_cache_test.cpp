// SPDX-License-Identifier: Apache-2.0
#include "scenarios/reader/scenario_cache.hpp"

#include <gtest/gtest.h>

namespace shardsim {
namespace {

const std::string folder = SHARDSIM_SOURCE_DIR "/scenarios";
const std::string text = R"(model:
  hf_config: models/tiny-llama.json
cluster: {profile: clusters/h100-sxm.yaml, nodes: 2, gpus_per_node: 4}
training: {sequence_length: 64}
strategy: {name: ddp}
)";

ConfigNode tree(const std::string& assignment = {}) {
  ConfigNode root = *read_yaml({"s.yaml", text});
  return assignment.empty() ? root : *with_override(std::move(root), assignment);
}

TEST(ScenarioCache, BlocksThatSayTheSameShareTheirModel) {
  ScenarioCache cache("s.yaml", folder);
  const auto first = cache.read(tree());
  ASSERT_TRUE(first.has_value()) << first.error().text();
  const auto faster = cache.read(tree("cluster.nic_bandwidth=1 GB/s"));
  const auto larger = cache.read(tree("training.micro_batch_size=2"));
  const auto again = cache.read(tree());
  EXPECT_EQ(first->model, faster->model);
  EXPECT_EQ(first->model, again->model);
  EXPECT_NE(first->model, larger->model);
  EXPECT_EQ(larger->model->tokens_per_micro_batch, Tokens{128});
  EXPECT_EQ(faster->cluster.profile.network.nic_bandwidth.base(), 1e9);
  EXPECT_NE(again->cluster.profile.network.nic_bandwidth.base(), 1e9);
}

TEST(ScenarioCache, ForgetsWhatWasUsedLongestAgo) {
  ScenarioCache cache("s.yaml", folder, 1);
  const auto first = cache.read(tree());
  const auto other = cache.read(tree("training.micro_batch_size=2"));
  const auto again = cache.read(tree());
  EXPECT_NE(first->model, again->model);
  EXPECT_EQ(first->model->total(), again->model->total());
}

TEST(ScenarioCache, WhatIsWrongIsWrongEveryTime) {
  ScenarioCache cache("s.yaml", folder);
  for (int i = 0; i < 2; ++i) {
    const auto bad = cache.read(tree("training.micro_batch_size=0"));
    ASSERT_FALSE(bad.has_value());
    EXPECT_EQ(bad.error().text(), read_scenario(tree("training.micro_batch_size=0"), "s.yaml", folder).error().text());
  }
  EXPECT_TRUE(cache.read(tree()).has_value());
  EXPECT_FALSE(cache.read(tree("strategy.name=fsdp1")).value().strategy.name == "ddp");
}

}  // namespace
}  // namespace shardsim
