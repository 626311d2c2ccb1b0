// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/collective_models.hpp"

#include <gtest/gtest.h>

namespace shardsim {
namespace {

Cluster cluster_of(std::int64_t nodes, std::int64_t gpus, std::int64_t nics, double ring_gbs, double nic_gbs) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.gpus_per_node = gpus;
  cluster.nics_per_node = nics;
  cluster.profile.node.gpus = 8;
  cluster.profile.node.ring_bandwidth = ByteRate{ring_gbs * 1e9};
  cluster.profile.network.nics_per_node = static_cast<std::int32_t>(nics);
  cluster.profile.network.nic_bandwidth = ByteRate{nic_gbs * 1e9};
  return cluster;
}

RingPath path_of(const Cluster& cluster, std::int64_t size, std::int64_t stride = 1) {
  return ring_path(place(Group{"g", size, stride}, cluster), cluster);
}

TEST(Placement, NeighboursFillNodesAndReplicasSpreadOverThem) {
  const Cluster cluster = cluster_of(4, 8, 8, 400, 50);
  EXPECT_EQ(place({"world", 32, 1}, cluster), (Placement{32, 4, 8, 1}));
  EXPECT_EQ(place({"shard", 8, 1}, cluster), (Placement{8, 1, 8, 1}));
  EXPECT_EQ(place({"half", 4, 1}, cluster), (Placement{4, 1, 4, 2}));
  EXPECT_EQ(place({"replicate", 4, 8}, cluster), (Placement{4, 4, 1, 8}));
  EXPECT_EQ(place({"replicate", 8, 4}, cluster), (Placement{8, 4, 2, 4}));
  EXPECT_EQ(place({"two nodes", 16, 1}, cluster), (Placement{16, 2, 8, 1}));
}

TEST(RingPath, TheBoundOfANodeIsTheSumOfItsNics) {
  const RingPath world = path_of(cluster_of(4, 8, 8, 367, 50), 32);
  EXPECT_DOUBLE_EQ(world.network.base(), 400e9);
  EXPECT_DOUBLE_EQ(world.bandwidth().base(), 367e9);
  EXPECT_EQ(world.bottleneck(), "ring inside the node, 367 GB/s");
  const RingPath slow = path_of(cluster_of(4, 8, 8, 367, 25), 32);
  EXPECT_DOUBLE_EQ(slow.bandwidth().base(), 200e9);
  EXPECT_EQ(slow.bottleneck(), "8 NICs x 25.0 GB/s");
}

TEST(RingPath, OneGpuPerNodeUsesOneNic) { EXPECT_DOUBLE_EQ(path_of(cluster_of(4, 1, 8, 367, 50), 4).bandwidth().base(), 50e9); }

TEST(RingPath, FourNicsPerGpuAreAllUsed) { EXPECT_DOUBLE_EQ(path_of(cluster_of(2, 1, 32, 367, 12.5), 2).bandwidth().base(), 50e9); }

TEST(RingPath, ReplicaRingsShareTheNics) {
  const RingPath replicas = path_of(cluster_of(4, 8, 8, 367, 50), 4, 8);
  EXPECT_FALSE(replicas.uses_fabric());
  EXPECT_DOUBLE_EQ(replicas.bandwidth().base(), 50e9);
  EXPECT_EQ(replicas.bottleneck(), "1 NIC x 50.0 GB/s");
  const RingPath halves = path_of(cluster_of(4, 8, 4, 367, 50), 4, 8);
  EXPECT_DOUBLE_EQ(halves.bandwidth().base(), 25e9);
  EXPECT_EQ(halves.bottleneck(), "0.5 of a NIC of 50.0 GB/s");
}

TEST(FlatRing, CountsStepsInsideAndAcross) {
  Cluster cluster = cluster_of(2, 4, 4, 100, 25);
  cluster.profile.network.base_latency = microseconds(5);
  cluster.profile.node.intra_latency = microseconds(1);
  cluster.profile.network.inter_latency = microseconds(10);
  // 8 ranks on 2 nodes: 7 steps, one of them crossing; phi S / 100 GB/s = 7/8 * 800 MB / 100 GB/s = 7 ms.
  EXPECT_NEAR(flat_ring(Collective::all_gather, Bytes{800'000'000}, path_of(cluster, 8)).time.base(), 7e-3 + 21e-6, 1e-12);
  // All-reduce: 14 steps, two crossing; 14 ms.
  EXPECT_NEAR(flat_ring(Collective::all_reduce, Bytes{800'000'000}, path_of(cluster, 8)).time.base(), 14e-3 + 37e-6, 1e-12);
}

TEST(FlatRing, OneRankTakesNoTime) {
  EXPECT_EQ(flat_ring(Collective::all_reduce, mebibytes(64), path_of(cluster_of(1, 1, 1, 100, 25), 1)).time, Seconds{});
}

TEST(AllToAll, TheShareThatLeavesTheNodeCrossesItsNics) {
  // 16 ranks on 2 nodes, S = 16 MB: each rank keeps 7/16 of S inside and sends 8/16 out; 8 ranks share 8 NICs of 50 GB/s.
  const ClosedForm form = flat_ring(Collective::all_to_all, Bytes{16'000'000}, path_of(cluster_of(2, 8, 8, 400, 50), 16));
  EXPECT_NEAR(form.network.base(), 8e6 * 8 / 400e9, 1e-15);
  EXPECT_NEAR(form.fabric.base(), 7e6 / 400e9, 1e-15);
}

struct Published {
  const char* name;
  std::int64_t nodes;
  double gib, ring_gbs, node_gbs, milliseconds;
};

// Published all-reduces of several nodes (ml-engineering network/README.md, coreweave/nccl-tests README.md, nccl-tests issue 119).
class FlatRingAgainstPublished : public ::testing::TestWithParam<Published> {};

TEST_P(FlatRingAgainstPublished, WithinSevenPercent) {
  const Published& row = GetParam();
  const RingPath path = path_of(cluster_of(row.nodes, 8, 8, row.ring_gbs, row.node_gbs / 8), row.nodes * 8);
  const Bytes size{static_cast<std::int64_t>(row.gib * (1 << 30))};
  const double predicted = flat_ring(Collective::all_reduce, size, path).time.base() * 1e3;
  EXPECT_NEAR(predicted / row.milliseconds, 1.0, 0.07) << row.name;
}

INSTANTIATE_TEST_SUITE_P(
    Rows, FlatRingAgainstPublished,
    ::testing::Values(Published{"B200 4x8, 4 GiB", 4, 4, 682, 400, 22.05}, Published{"B200 4x8, 16 GiB", 4, 16, 682, 400, 87.18},
                      Published{"H200 4x8, 4 GiB", 4, 4, 367, 400, 22.81}, Published{"H100 8x8, 8 GiB", 8, 8, 367, 400, 43.98},
                      Published{"H100 8x8, 1 GiB", 8, 1, 367, 400, 5.81}, Published{"A100 3x8, 128 MiB", 3, 0.125, 230, 100, 2.68}));

/// The same as NCCL would run it.
RingPath on_nccl(RingPath path, NcclGeneration generation) {
  path.nccl = NcclMachine{generation, generation == NcclGeneration::blackwell ? 16 : 12, true};
  return path;
}

TEST(Protocols, SmallTakesLlAndLargeTakesSimple) {
  Cluster cluster = cluster_of(2, 8, 8, 367, 50);
  cluster.profile.network.base_latency = microseconds(6.6);
  cluster.profile.network.inter_latency = microseconds(5);
  cluster.profile.node.intra_latency = microseconds(0.6);
  const RingPath path = on_nccl(path_of(cluster, 16), NcclGeneration::hopper);
  const ClosedForm small = flat_ring(Collective::all_gather, kibibytes(8), path);
  EXPECT_EQ(small.protocol, NcclProtocol::ll);
  // 15 steps, one of them crossing; between nodes a hop takes 1 us at least; half of the bandwidth, at most 45 GB/s on two nodes.
  EXPECT_NEAR(small.time.base(), 6.6e-6 + 14 * 1e-6 + 5e-6 + 8192 * 15 / 16. / 45e9, 1e-10);
  EXPECT_EQ(flat_ring(Collective::all_gather, mebibytes(16), path).protocol, NcclProtocol::ll128);
  const ClosedForm large = flat_ring(Collective::all_gather, gibibytes(4), path);
  EXPECT_EQ(large.protocol, NcclProtocol::simple);
  // Simple: 1.8 us more to begin, 2.8 us more a hop; crossing 11.3 us more on the network and 6.2 us for the flush.
  EXPECT_NEAR(large.time.base(), 8.4e-6 + 14 * 3.4e-6 + 22.5e-6 + 4294967296. * 15 / 16 / 367e9, 1e-9);
}

TEST(Protocols, PcieHasNoLl128) {
  RingPath path = on_nccl(path_of(cluster_of(1, 8, 8, 12, 50), 8), NcclGeneration::ampere);
  path.nccl->nvlink = false;
  for (std::int64_t size = 1024; size < (std::int64_t{1} << 33); size *= 2)
    EXPECT_NE(flat_ring(Collective::all_gather, Bytes{size}, path).protocol, NcclProtocol::ll128) << size;
}

TEST(Tree, OnTwoNodesHalfOfTwoBuffersLeavesEach) {
  const RingPath path = path_of(cluster_of(2, 8, 8, 1e6, 50), 16);
  const ClosedForm form = tree_all_reduce(Bytes{800'000'000}, path);
  EXPECT_EQ(form.network_bytes, Bytes{800'000'000});  // 2 S (k - 1) / k
  EXPECT_NEAR(form.time.base(), 2e-3, 1e-4);
  EXPECT_EQ(tree_all_reduce(Bytes{800'000'000}, path_of(cluster_of(4, 8, 8, 1e6, 50), 32)).network_bytes, Bytes{1'200'000'000});
}

TEST(Islands, AnNvlinkDomainOfSeveralNodesIsOneLevel) {
  Cluster cluster = cluster_of(36, 4, 4, 835, 50);
  cluster.profile.node.gpus = 4;
  cluster.profile.node.nvlink_nodes = 18;
  const RingPath rack = path_of(cluster, 72), two = path_of(cluster, 144);
  EXPECT_FALSE(rack.crosses_nodes());
  EXPECT_TRUE(two.crosses_nodes());
  EXPECT_EQ(two.placement.islands(), 2);
  EXPECT_DOUBLE_EQ(two.network.base(), 18 * 4 * 50e9);  // all NICs of a rack
  EXPECT_EQ(flat_ring(Collective::all_reduce, gibibytes(4), rack).network, Seconds{});
}

TEST(NarrowestCut, IsBelowEveryAlgorithm) {
  for (const std::int64_t nodes : {2, 3, 8}) {
    const RingPath path = path_of(cluster_of(nodes, 8, 8, 367, 3), nodes * 8);
    const Seconds cut = narrowest_cut(Collective::all_reduce, gibibytes(1), path);
    EXPECT_LE(cut, flat_ring(Collective::all_reduce, gibibytes(1), path).time);
    EXPECT_LE(cut, tree_all_reduce(gibibytes(1), path).time);
    EXPECT_LE(cut, nvls_all_reduce(gibibytes(1), path).time);
    EXPECT_LE(cut, hierarchical_all_reduce(gibibytes(1), path, 1'000'000).time);
    EXPECT_LE(narrowest_cut(Collective::all_gather, gibibytes(1), path), flat_ring(Collective::all_gather, gibibytes(1), path).time);
  }
}

TEST(Hierarchical, LiesBetweenOverlappedAndSerial) {
  // B200 4x8, 16 GiB: 64.4 ms if the levels overlap fully, 108.5 ms one after the other (measured as one flat ring: 87.2 ms).
  const RingPath path = path_of(cluster_of(4, 8, 8, 682, 50), 32);
  EXPECT_NEAR(hierarchical_all_reduce(gibibytes(16), path, 1).time.base() * 1e3, 108.5, 0.1);
  EXPECT_NEAR(hierarchical_all_reduce(gibibytes(16), path, 1'000'000).time.base() * 1e3, 64.4, 0.1);
}

TEST(Tree, BeatsTheRingForSmallPayloadsOnManyNodesOnly) {
  Cluster cluster = cluster_of(128, 8, 8, 367, 50);
  cluster.profile.node.intra_latency = microseconds(0.55);
  cluster.profile.network.inter_latency = microseconds(5);
  const RingPath path = path_of(cluster, 1024);
  EXPECT_LT(tree_all_reduce(kibibytes(4), path).time, flat_ring(Collective::all_reduce, kibibytes(4), path).time);
  EXPECT_GT(tree_all_reduce(gibibytes(8), path).time, flat_ring(Collective::all_reduce, gibibytes(8), path).time);
  // 2 x (7 x 0.55 + 7 x 5) us of latency, no bandwidth term for an empty payload.
  EXPECT_NEAR(tree_all_reduce(Bytes{}, path).time.base(), 77.7e-6, 1e-9);
}

}  // namespace
}  // namespace shardsim
