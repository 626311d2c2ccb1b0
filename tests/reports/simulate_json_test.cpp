// SPDX-License-Identifier: Apache-2.0
#include "studies/simulate/simulate_json.hpp"

#include <gtest/gtest.h>

#include "sample_result.hpp"

namespace shardsim {
namespace {

std::int64_t integer(const Json& json, std::string_view path) {
  const Json* found = json.find(path);
  if (!found || !found->as<std::int64_t>()) throw std::runtime_error("no integer at " + std::string(path));
  return *found->as<std::int64_t>();
}

double number(const Json& json, std::string_view path) { return *json.find(path)->as<double>(); }

TEST(SimulateJson, HoldsEveryFieldOfTheContractInOrder) {
  const std::vector<std::string> expected{"schema",
                                          "scenario",
                                          "strategy",
                                          "semantics",
                                          "library",
                                          "world_size",
                                          "model.name",
                                          "model.parameters",
                                          "model.trainable_parameters",
                                          "traffic.sent_bytes_per_rank.total",
                                          "traffic.sent_bytes_per_rank.all_reduce",
                                          "traffic.sent_bytes_per_rank.all_gather",
                                          "traffic.sent_bytes_per_rank.reduce_scatter",
                                          "traffic.sent_bytes_per_rank.broadcast",
                                          "traffic.sent_bytes_per_rank.reduce",
                                          "traffic.sent_bytes_per_rank.all_to_all",
                                          "traffic.sent_bytes_by_rank.min",
                                          "traffic.sent_bytes_by_rank.mean",
                                          "traffic.sent_bytes_by_rank.max",
                                          "traffic.control_bytes_per_rank",
                                          "traffic.psi_units",
                                          "traffic.textbook_bytes_per_rank",
                                          "traffic.textbook_differs_because",
                                          "memory.peak_bytes",
                                          "memory.peak_at",
                                          "memory.peak_phase",
                                          "memory.capacity_bytes",
                                          "memory.fits",
                                          "memory.persistent_bytes.parameters",
                                          "memory.persistent_bytes.gradients",
                                          "memory.persistent_bytes.optimizer_states",
                                          "memory.persistent_bytes.total",
                                          "memory.resident_bytes",
                                          "memory.at_peak_bytes.parameters",
                                          "memory.at_peak_bytes.gradients",
                                          "memory.at_peak_bytes.optimizer_states",
                                          "memory.at_peak_bytes.unsharded_parameters",
                                          "memory.at_peak_bytes.unsharded_gradients",
                                          "memory.at_peak_bytes.communication_buffers",
                                          "memory.at_peak_bytes.activations",
                                          "memory.at_peak_bytes.logits",
                                          "memory.at_peak_bytes.temporaries",
                                          "memory.reserved_peak_bytes",
                                          "memory.overhead_bytes",
                                          "memory.device_peak_bytes",
                                          "step.time_s",
                                          "step.compute_s",
                                          "step.communication_s",
                                          "step.exposed_communication_s",
                                          "step.host_bound_s",
                                          "step.optimizer_s",
                                          "step.tokens_per_second",
                                          "step.tokens_per_second_per_gpu",
                                          "step.model_flops",
                                          "step.hardware_flops",
                                          "step.flop_convention",
                                          "step.mfu",
                                          "step.hfu",
                                          "step.bound_by",
                                          "step.bottleneck_link"};
  EXPECT_EQ(leaf_paths(simulate_json(sample_result())), expected);
}

TEST(SimulateJson, CarriesTheFiguresOfTheResult) {
  const Json json = simulate_json(sample_result());
  EXPECT_EQ(*json.find("schema")->as<std::string>(), "shardsim.simulate/1");
  EXPECT_EQ(integer(json, "world_size"), 4);
  EXPECT_EQ(integer(json, "model.trainable_parameters"), 250'000);
  EXPECT_EQ(integer(json, "traffic.sent_bytes_per_rank.total"), 4'500'000);
  EXPECT_EQ(integer(json, "traffic.sent_bytes_per_rank.all_gather"), 3'000'000);
  EXPECT_EQ(integer(json, "traffic.sent_bytes_by_rank.min"), 4'499'999);
  EXPECT_EQ(number(json, "traffic.psi_units"), 6.0);
  EXPECT_EQ(integer(json, "memory.peak_bytes"), 73'502'048);
  EXPECT_EQ(integer(json, "memory.persistent_bytes.total"), 4'000'000);
  EXPECT_EQ(*json.find("memory.fits")->as<bool>(), true);
  EXPECT_EQ(number(json, "step.exposed_communication_s"), 0.25);
  EXPECT_EQ(*json.find("warnings.0")->as<std::string>(), "a warning");
}

TEST(SimulateJson, SingleFiguresAreTheSameInParts) {
  const SimulationResult result = sample_result();
  const Json whole = simulate_json(result), some = simulate_figures(result, std::vector<std::string>{"traffic", "step"});
  for (const std::string& path : leaf_paths(whole)) {
    const bool asked = path.starts_with("traffic.") || path.starts_with("step.");
    ASSERT_EQ(some.find(path) != nullptr, asked) << path;
    if (asked) { EXPECT_EQ(some.find(path)->line(), whole.find(path)->line()) << path; }
  }
  EXPECT_EQ(some.find("traffic.by_group"), nullptr);
  EXPECT_EQ(some.find("warnings"), nullptr);
}

TEST(SimulateJson, LeavesControlMessagesOutOfTheRows) {
  const Json json = simulate_json(sample_result());
  ASSERT_EQ(json.find("traffic.by_group")->as<Json::List>()->size(), 2U);
  EXPECT_EQ(
      json.find("traffic.by_group.1")->line(),
      R"({"group":"world","collective":"reduce_scatter","dtype":"bf16","payload_bytes":2000000,"calls":1,"sent_bytes_per_rank":1500000,)"
      R"("algorithm":"ring","cost_model":"ring alpha-beta"})");
}

TEST(SimulateCsv, HasOneHeaderAndOneLineAScenario) {
  const std::vector<SimulationResult> results{sample_result(), sample_result()};
  const std::string csv = simulate_csv(results);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  EXPECT_TRUE(csv.starts_with("schema,scenario,strategy,")) << csv;
  EXPECT_NE(csv.find("\nshardsim.simulate/1,sample.yaml,fsdp2,framework,PyTorch (fully_shard),4,sample "
                     "model,1000000,250000,4500000,0,3000000,1500000,"),
            std::string::npos)
      << csv;
  EXPECT_NE(csv.find(",\"forward(layers.0), micro-batch 0\","), std::string::npos);
}

}  // namespace
}  // namespace shardsim
