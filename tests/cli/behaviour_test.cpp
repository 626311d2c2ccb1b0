// SPDX-License-Identifier: Apache-2.0
// Simulated time behaves as time does: properties of whole simulations.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

Scenario scenario(const std::string& strategy, const std::string& more = "", const std::string& cluster = "") {
  const std::string text = "model: {preset: gpt2-xl}\ncluster:\n  profile: clusters/h100-sxm.yaml\n  nodes: 2\n" + cluster +
                           "training: {sequence_length: 1024, micro_batch_size: 2, precision: mixed}\nstrategy: {name: " + strategy + more +
                           "}\n";
  return value_or_throw(read_scenario(value_or_throw(read_yaml({"behaviour.yaml", text})), "behaviour.yaml", shipped_folder()));
}

TEST(SimulatedTime, ExposedCommunicationFallsWithBandwidthToNothing) {
  for (const char* strategy : {"naive_dp", "ddp", "zero3", "fsdp1", "fsdp2"}) {
    double before = 1e9;
    for (const char* bandwidth : {"10 Gbit/s", "100 Gbit/s", "400 Gbit/s", "3200 Gbit/s"}) {
      const SimulationResult r = simulate_scenario(scenario(strategy, "", std::string("  nic_bandwidth: ") + bandwidth + "\n"));
      EXPECT_LE(r.step.exposed_communication.base(), before + 1e-9) << strategy << " at " << bandwidth;
      before = r.step.exposed_communication.base();
    }
  }
}

TEST(SimulatedTime, AnInfinitelyFastNetworkExposesNothing) {
  Scenario s = scenario("fsdp2");
  Profile& p = s.cluster.profile;
  p.collectives.clear();
  p.node.ring_bandwidth = ByteRate{1e30};
  p.network.nic_bandwidth = ByteRate{1e30};
  p.node.intra_latency = p.network.inter_latency = p.network.base_latency = Seconds{0};
  EXPECT_LT(simulate_scenario(s).step.exposed_communication.base(), 1e-9);
}

TEST(SimulatedTime, DdpIsNeverSlowerThanTheNaiveLoop) {
  for (const char* bandwidth : {"25 Gbit/s", "400 Gbit/s"}) {
    const std::string cluster = std::string("  nic_bandwidth: ") + bandwidth + "\n";
    const double naive = simulate_scenario(scenario("naive_dp", "", cluster)).step.time.base();
    EXPECT_LE(simulate_scenario(scenario("ddp", "", cluster)).step.time.base(), naive) << bandwidth;
  }
}

TEST(Timeline, CollectivesOfACommunicatorNeverOverlapAndCarryTheAccountsBytes) {
  for (const char* strategy : {"naive_dp", "ddp", "zero3", "mics", "fsdp1", "fsdp2"}) {
    const SimulationResult r = simulate_scenario(scenario(strategy), {.timeline = true});
    std::map<std::int32_t, std::vector<std::pair<std::int64_t, std::int64_t>>> by_communicator;
    std::map<std::int64_t, __int128> sent_times_size;
    for (const Slice& slice : r.timeline.slices) {
      const auto* c = std::get_if<Communicate>(&r.schedule->at(slice.op).action);
      if (!c) continue;
      by_communicator[c->communicator.index].emplace_back(slice.begin.picoseconds(), slice.end.picoseconds());
      const std::int64_t n = r.schedule->group_of(c->communicator).size;
      if (!c->control) sent_times_size[n] += sent_times_n(c->kind, bytes(c->payload, c->dtype), n);
    }
    for (auto& [communicator, spans] : by_communicator) {
      std::sort(spans.begin(), spans.end());
      for (std::size_t i = 1; i < spans.size(); ++i) EXPECT_GE(spans[i].first, spans[i - 1].second) << strategy;
    }
    double sent = 0;
    for (const auto& [n, total] : sent_times_size) sent += static_cast<double>(total) / static_cast<double>(n);
    EXPECT_NEAR(sent, static_cast<double>(r.traffic.total.value()), static_cast<double>(r.traffic.by_group.size())) << strategy;
  }
}

TEST(Simulation, SameInputSameOutput) {
  const SimulationResult a = simulate_scenario(scenario("fsdp2")), b = simulate_scenario(scenario("fsdp2"));
  EXPECT_EQ(a.timeline.end, b.timeline.end);
  EXPECT_EQ(a.memory.peak, b.memory.peak);
  EXPECT_EQ(a.traffic.total, b.traffic.total);
}

}  // namespace
}  // namespace shardsim
