// SPDX-License-Identifier: Apache-2.0
// What follows from measured collectives, and the laws that modelled times obey.
#include "sim/costs/collectives/measured_collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/costs/collectives/collective_predictor.hpp"

namespace shardsim {
namespace {

using ::testing::HasSubstr;

Profile shipped_profile(const std::string& name) {
  return *read_profile(*read_yaml(*read_source(SHARDSIM_SOURCE_DIR "/scenarios/clusters/" + name + ".yaml")));
}

Cluster cluster_of(Profile profile, std::int64_t nodes) {
  Cluster cluster;
  cluster.profile = std::move(profile);
  cluster.nodes = nodes;
  cluster.gpus_per_node = cluster.profile.node.gpus;
  cluster.nics_per_node = cluster.profile.network.nics_per_node;
  return cluster;
}

/// T = `us` + f S / `gbs` at powers of four from 1 MiB to 4 GiB.
CollectiveFit measured(Collective collective, std::int64_t ranks, std::int64_t nodes, double us, double gbs) {
  CollectiveFit fit;
  fit.collective = collective;
  fit.ranks = ranks;
  fit.nodes = nodes;
  fit.algorithm = "unknown";
  for (std::int64_t size = 1 << 20; size <= std::int64_t{1} << 32; size *= 4) {
    const Seconds time = microseconds(us) + Seconds{bus_factor(collective, ranks) * static_cast<double>(size) / (gbs * 1e9)};
    fit.samples.push_back({Bytes{size}, time, time, time, 1});
  }
  return fit;
}

CollectiveTime predicted(const Cluster& cluster, Collective collective, Bytes size, std::int64_t ranks) {
  return CollectivePredictor(cluster).predict(collective, size, {"world", ranks, 1});
}

double busbw(const Cluster& cluster, Collective collective, Bytes size, std::int64_t ranks) {
  return bus_factor(collective, ranks) * (size / predicted(cluster, collective, size, ranks).time.seconds()).base() / 1e9;
}

TEST(Measured, ASampleOfExactlyThisGroupAlwaysWins) {
  // Faster than a flat ring over the NICs, as trees and NVLSTree between two nodes are, and slower than it.
  for (const double gbs : {480., 90.})
    for (const char* word : {"library", "auto"}) {
      Cluster cluster = cluster_of(shipped_profile("h100-sxm"), 2);
      cluster.profile.network.all_reduce_algorithm = word;
      cluster.profile.collectives.push_back(measured(Collective::all_reduce, 16, 2, 100, gbs));
      for (const auto& sample : cluster.profile.collectives.back().samples)
        EXPECT_NEAR(predicted(cluster, Collective::all_reduce, sample.size, 16).time.seconds() / sample.median, 1, 1e-6) << gbs;
      EXPECT_EQ(predicted(cluster, Collective::all_reduce, gibibytes(1), 16).model, "calibrated, 16 ranks on 2 nodes");
    }
}

TEST(Measured, APinnedAlgorithmStaysAWhatIf) {
  Cluster cluster = cluster_of(shipped_profile("h100-sxm"), 2);
  cluster.profile.collectives.push_back(measured(Collective::all_reduce, 16, 2, 100, 480));
  cluster.profile.network.all_reduce_algorithm = "ring";
  EXPECT_LE(busbw(cluster, Collective::all_reduce, gibibytes(1), 16), 400);  // the NICs
}

TEST(Measured, TeachesSistersAndOtherNodes) {
  Cluster cluster = cluster_of(shipped_profile("h100-sxm"), 4);
  cluster.profile.collectives.push_back(measured(Collective::all_gather, 16, 2, 60, 120));
  EXPECT_NEAR(busbw(cluster, Collective::all_gather, gibibytes(1), 16), 120, 4);
  EXPECT_NEAR(busbw(cluster, Collective::reduce_scatter, gibibytes(1), 16), 120, 4);
  EXPECT_NEAR(busbw(cluster, Collective::all_gather, gibibytes(1), 32), 120, 6);
  EXPECT_LT(busbw(cluster, Collective::all_reduce, gibibytes(1), 32), 180);
  EXPECT_EQ(predicted(cluster, Collective::reduce_scatter, gibibytes(1), 16).model,
            "learnt from calibrated all_gather, 16 ranks on 2 nodes");
  const CollectiveTime far = predicted(cluster, Collective::all_gather, gibibytes(1), 32);
  EXPECT_EQ(far.model, "learnt from all_gather of 16 ranks on 2 nodes");
  EXPECT_TRUE(far.extrapolated);
  // What is measured inside one node stays as it is.
  EXPECT_EQ(predicted(cluster, Collective::all_gather, gibibytes(1), 8).model, "calibrated, 8 ranks on 1 node");
}

TEST(Measured, BetweenTwoNumbersOfNodesThereIsNoCliff) {
  Cluster cluster = cluster_of(shipped_profile("h100-sxm"), 8);
  cluster.profile.collectives.push_back(measured(Collective::all_gather, 16, 2, 60, 300));
  cluster.profile.collectives.push_back(measured(Collective::all_gather, 64, 8, 200, 200));
  EXPECT_NEAR(busbw(cluster, Collective::all_gather, gibibytes(4), 32), std::sqrt(300. * 200.), 12);
}

TEST(Measured, ASmallerRateKeepsLatencyAndEfficiency) {
  Cluster cluster = cluster_of(shipped_profile("h100-sxm"), 2);
  cluster.profile.collectives.push_back(measured(Collective::all_gather, 16, 2, 60, 180));  // about half of what the links carry
  const Profile before = cluster.profile;
  const double half = busbw(cluster, Collective::all_gather, gibibytes(4), 16);
  cluster.profile.measured_on = MeasuredOn{before.node, before.network, before.topology};
  EXPECT_DOUBLE_EQ(busbw(cluster, Collective::all_gather, gibibytes(4), 16), half);  // equal to what is there: nothing changes
  cluster.profile.network.nic_bandwidth = before.network.nic_bandwidth * 0.25;       // 100 GB/s a node
  EXPECT_NEAR(busbw(cluster, Collective::all_gather, gibibytes(4), 16), 49, 2);
  EXPECT_THAT(predicted(cluster, Collective::all_gather, gibibytes(1), 16).model, HasSubstr("at other rates"));
  const Seconds small = predicted(cluster, Collective::all_gather, mebibytes(1), 16).time.seconds();
  EXPECT_GT(small, microseconds(60));
}

TEST(Measured, ARackOfSeveralNodesIsBelieved) {
  Profile profile = shipped_profile("b200-sxm");
  profile.node.gpus = 4;
  profile.collectives = {measured(Collective::all_reduce, 72, 18, 300, 840)};
  const Cluster cluster = cluster_of(profile, 18);
  EXPECT_NEAR(busbw(cluster, Collective::all_reduce, gibibytes(4), 72), 820, 30);
  // Described as what it is, it is not doubted.
  EXPECT_FALSE(predicted(cluster, Collective::all_reduce, gibibytes(4), 72).doubt.empty());
  profile.node.nvlink_nodes = 18;
  EXPECT_TRUE(predicted(cluster_of(profile, 18), Collective::all_reduce, gibibytes(4), 72).doubt.empty());
}

// Laws of modelled times, on every shipped machine, with and without measurements to learn from.
class ModelledTimes : public ::testing::TestWithParam<std::tuple<const char*, const char*, bool>> {
 protected:
  [[nodiscard]] static Cluster cluster(std::int64_t nodes, double gbit = 0) {
    const auto& [name, word, learnt] = GetParam();
    Cluster cluster = cluster_of(shipped_profile(name), nodes);
    cluster.profile.network.all_reduce_algorithm = word;
    if (learnt) cluster.profile.collectives.push_back(measured(Collective::all_gather, 32, 4, 90, 150));
    if (gbit <= 0) return cluster;
    cluster.profile.measured_on = MeasuredOn{cluster.profile.node, cluster.profile.network, cluster.profile.topology};
    cluster.profile.network.nic_bandwidth = ByteRate{gbit * 1e9 / 8};
    return cluster;
  }
};

constexpr std::array modelled{Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter};

TEST_P(ModelledTimes, NeverFallWithMoreData) {
  for (const std::int64_t nodes : {1, 2, 8}) {
    const CollectivePredictor predictor(cluster(nodes));
    for (const Collective c : modelled) {
      SimTime last;
      for (std::int64_t size = 512; size < std::int64_t{1} << 36; size += size / 3) {
        const SimTime time = predictor.cost(c, Bytes{size}, {"world", nodes * 8, 1}).time;
        EXPECT_GE(time, last) << name_of(c) << " of " << size << " on " << nodes;
        last = time;
      }
    }
  }
}

TEST_P(ModelledTimes, NeverFallWhenTheNicsGetSlowerAndNeverBeatThem) {
  for (const Collective c : modelled)
    for (const std::int64_t size : {std::int64_t{1} << 16, std::int64_t{1} << 25, std::int64_t{1} << 32}) {
      Seconds last;
      for (const double gbit : {400., 200., 50., 10., 1.}) {
        const Cluster slower = cluster(2, gbit);
        const Group world{"world", 16, 1};
        const Seconds time = CollectivePredictor(slower).cost(c, Bytes{size}, world).time.seconds();
        EXPECT_GE(time * (1 + 1e-9), last) << name_of(c) << " of " << size << " at " << gbit;
        EXPECT_GE(time * (1 + 1e-9), narrowest_cut(c, Bytes{size}, ring_path(world, slower)));
        last = time;
      }
    }
}

TEST_P(ModelledTimes, OneNodeIsNeverSlowerThanTwo) {
  const auto& [name, word, learnt] = GetParam();
  const CollectivePredictor one(cluster(1)), two(cluster(2));
  for (const Collective c : modelled) {
    if (c == Collective::all_reduce && std::string(name) != "a100-sxm-80") continue;  // the switch adds for two nodes as for one
    for (std::int64_t size = 1 << 16; size <= std::int64_t{1} << 34; size *= 2) {
      const double inside = bus_factor(c, 8) / one.cost(c, Bytes{size}, {"world", 8, 1}).time.seconds().base();
      const double across = bus_factor(c, 16) / two.cost(c, Bytes{size}, {"world", 16, 1}).time.seconds().base();
      EXPECT_LE(across, inside * 1.01) << name_of(c) << " of " << size;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Machines, ModelledTimes,
                         ::testing::Combine(::testing::Values("a100-sxm-80", "h100-sxm", "h200-sxm", "b200-sxm"),
                                            ::testing::Values("library", "auto", "ring"), ::testing::Bool()));

}  // namespace
}  // namespace shardsim
