// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/ring_embedding.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "sim/costs/collectives/collective_placement.hpp"

namespace shardsim {
namespace {

Cluster cluster_of(std::int64_t nodes, std::int64_t gpus = 8, std::int64_t nics = 8, double nic_gbs = 50) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.gpus_per_node = gpus;
  cluster.nics_per_node = nics;
  cluster.profile.node.gpus = 8;
  cluster.profile.node.ring_bandwidth = ByteRate{367e9};
  cluster.profile.gpu.host_link = ByteRate{54e9};
  cluster.profile.network.nics_per_node = static_cast<std::int32_t>(nics);
  cluster.profile.network.nic_bandwidth = ByteRate{nic_gbs * 1e9};
  cluster.profile.network.inter_latency = microseconds(5);
  return cluster;
}

RingEmbedding embedded(const Cluster& cluster, const Group& group) {
  const auto graph = ClusterGraph::expand(cluster);
  EXPECT_TRUE(graph) << graph.error();
  return embed_rings(*graph, cluster, group);
}

TEST(RingEmbedding, SymmetricClustersGiveTheClosedSums) {
  for (const std::int64_t nodes : {1, 2, 3, 4, 7})
    for (const std::int64_t gpus : {1, 2, 4, 8})
      for (const std::int64_t nics : {1, 2, 4, 8, 16}) {
        const Cluster cluster = cluster_of(nodes, gpus, nics);
        std::vector<Group> groups{{"world", nodes * gpus, 1}, {"node", gpus, 1}, {"replicate", nodes, gpus}};
        if (gpus > 1) groups.push_back({"half", nodes * 2, gpus / 2});
        for (const Group& group : groups) {
          if (group.size == 1) continue;
          if (nics < gpus && gpus % nics != 0) continue;
          const RingPath closed = ring_path(place(group, cluster), cluster);
          const RingEmbedding rings = embedded(cluster, group);
          const std::string what = testing::PrintToString(std::tuple(nodes, gpus, nics)) + " " + group.name;
          const double inside = closed.uses_fabric() ? rings.inside / closed.intra : 1;
          const double across = closed.crosses_nodes() ? rings.across / closed.network : 1;
          EXPECT_NEAR(inside, 1, 1e-9) << what;
          EXPECT_NEAR(across, 1, 1e-9) << what;
        }
      }
}

TEST(RingEmbedding, LinksAreNamed) {
  const RingEmbedding rings = embedded(cluster_of(4), {"world", 32, 1});
  EXPECT_EQ(rings.inside_link, "node0.gpu0 to node0.nvswitch0");
  EXPECT_EQ(rings.across_link, "node0.nic0 to leaf0");
  // Without a topology the names are known beforehand.
  for (const Group& group : {Group{"world", 32, 1}, {"replicate", 4, 8}, {"half", 8, 4}}) {
    const RingPath path = ring_path(group, cluster_of(4));
    EXPECT_EQ(path.inside_link, embedded(cluster_of(4), group).inside_link) << group.name;
    EXPECT_EQ(path.across_link, embedded(cluster_of(4), group).across_link) << group.name;
  }
}

TEST(RingEmbedding, AnOversubscribedLeafHoldsTheRing) {
  Cluster cluster = cluster_of(4);
  cluster.profile.topology = Topology{};
  cluster.profile.topology->nodes_per_leaf = 2;
  // In rank order the ring leaves a leaf once: 2 x 8 x 50 GB/s down, a quarter of it up.
  cluster.profile.topology->oversubscription = 4;
  const RingEmbedding packed = embedded(cluster, {"world", 32, 1});
  EXPECT_NEAR(packed.across.base(), 200e9, 1);
  EXPECT_EQ(packed.across_link, "leaf0 to spine0");
  // On scattered nodes every step leaves its leaf: two nodes share 800 / 4 GB/s.
  cluster.profile.topology->scattered = true;
  EXPECT_NEAR(embedded(cluster, {"world", 32, 1}).across.base(), 100e9, 1);
  // No oversubscription, no bound beyond the NICs.
  cluster.profile.topology->oversubscription = 1;
  EXPECT_NEAR(embedded(cluster, {"world", 32, 1}).across.base(), 400e9, 1);
}

TEST(RingEmbedding, RailsKeepEveryStepOnItsRail) {
  Cluster cluster = cluster_of(4);
  cluster.profile.topology = Topology{};
  cluster.profile.topology->rails = true;
  cluster.profile.topology->oversubscription = 1000;  // to the spines: not needed, for each rail's leaf joins all nodes
  EXPECT_NEAR(embedded(cluster, {"world", 32, 1}).across.base(), 400e9, 1);
  cluster.nodes = 3;  // an odd number: the last node relays between its GPUs to close the ring on the same rail
  EXPECT_NEAR(embedded(cluster, {"world", 24, 1}).across.base(), 400e9, 1);
  EXPECT_NEAR(embedded(cluster, {"replicate", 3, 8}).across.base(), 50e9, 1);
}

TEST(RingEmbedding, OneSlowCableHoldsAllRings) {
  Cluster cluster = cluster_of(2, 2, 2);
  Topology topology;
  topology.links = {{"node0.nic[0-1]", "leaf0", ByteRate{50e9}, {}, Wiring::all},
                    {"node1.nic0", "leaf0", ByteRate{50e9}, {}, Wiring::all},
                    {"node1.nic1", "leaf0", ByteRate{10e9}, {}, Wiring::all}};
  cluster.profile.topology = topology;
  const RingEmbedding rings = embedded(cluster, {"world", 4, 1});
  // Two channels of half the bytes each: the slow cable carries B / 2.
  EXPECT_NEAR(rings.across.base(), 20e9, 1);
  EXPECT_EQ(rings.across_link, "node1.nic1 to leaf0");
}

TEST(RingEmbedding, PcieTreesShareTheirUplinks) {
  Cluster cluster = cluster_of(1, 4);
  Topology topology;
  topology.node_links = {{"gpu[0-3]", "pcie[0-1]", ByteRate{25e9}, {}, Wiring::blocks},
                         {"pcie[0-1]", "host0", ByteRate{20e9}, {}, Wiring::all}};
  cluster.profile.topology = topology;
  EXPECT_NEAR(embedded(cluster, {"node", 4, 1}).inside.base(), 20e9, 1);  // one ring crosses the host once each way
  EXPECT_EQ(embedded(cluster, {"node", 4, 1}).inside_link, "node0.pcie0 to node0.host0");
  EXPECT_NEAR(embedded(cluster, {"pair", 2, 1}).inside.base(), 25e9, 1);
  EXPECT_NEAR(embedded(cluster, {"far", 2, 2}).inside.base(), 10e9, 1);  // two rings at once do
}

TEST(RingEmbedding, WithoutASwitchTheBestOrderIsFound) {
  // A ring of cables 0 - 2 - 1 - 3 - 0: rank order would cross two cables a step.
  Cluster cluster = cluster_of(1, 4);
  Topology topology;
  for (const auto& [a, b] : {std::pair{"gpu0", "gpu2"}, {"gpu2", "gpu1"}, {"gpu1", "gpu3"}, {"gpu3", "gpu0"}})
    topology.node_links.push_back({a, b, ByteRate{50e9}, {}, Wiring::all});
  cluster.profile.topology = topology;
  EXPECT_NEAR(embedded(cluster, {"node", 4, 1}).inside.base(), 50e9, 1);
}

TEST(RingEmbedding, AFullMeshCarriesSeveralRings) {
  // Eight MI300X, a cable of 48 GB/s between every two: one cable on two GPUs, seven rings on eight (47.7 and 312.9 GB/s measured).
  Topology topology;
  for (int i = 0; i < 8; ++i)
    for (int j = i + 1; j < 8; ++j)
      topology.node_links.push_back({"gpu" + std::to_string(i), "gpu" + std::to_string(j), ByteRate{48e9}, {}, Wiring::all});
  for (const auto& [gpus, rate] : {std::pair{8, 336e9}, {4, 144e9}, {2, 48e9}}) {
    Cluster cluster = cluster_of(1, gpus);
    cluster.profile.topology = topology;
    EXPECT_NEAR(embedded(cluster, {"node", gpus, 1}).inside.base() / rate, 1, 0.05) << gpus;
  }
  // Pairs at once have a cable each.
  Cluster cluster = cluster_of(1, 8);
  cluster.profile.topology = topology;
  EXPECT_NEAR(embedded(cluster, {"pair", 2, 1}).inside.base(), 48e9, 1);
}

TEST(RingEmbedding, NicsThatShareASwitchEnterAGpuEach) {
  // Two GPUs and two NICs of 25 GB/s under each PCIe switch, as on a DGX A100: all NICs are filled.
  Cluster cluster = cluster_of(2, 4, 4, 25);
  Topology topology;
  topology.node_links = {{"gpu[0-3]", "nvswitch0", ByteRate{240e9}, {}, Wiring::all},
                         {"gpu[0-3]", "pcie[0-1]", ByteRate{27e9}, {}, Wiring::blocks},
                         {"nic[0-3]", "pcie[0-1]", ByteRate{27e9}, {}, Wiring::blocks},
                         {"pcie[0-1]", "host0", ByteRate{10e9}, {}, Wiring::all}};
  cluster.profile.topology = topology;
  EXPECT_NEAR(embedded(cluster, {"world", 8, 1}).across.base(), 100e9, 1e6);
}

TEST(RingEmbedding, AllToAllMeetsTheOversubscription) {
  // 4 nodes under 2 leaves: each rank sends half its buffer to the other leaf: 16 ranks x S / 2 over 800 / 4 GB/s: S / time = 25 GB/s.
  Cluster cluster = cluster_of(4);
  cluster.profile.topology = Topology{};
  cluster.profile.topology->nodes_per_leaf = 2;
  cluster.profile.topology->oversubscription = 4;
  EXPECT_NEAR(embed_rings(*ClusterGraph::expand(cluster), cluster, {"world", 32, 1}, true).exchange.base(), 25e9, 1);
}

TEST(RingPath, ATopologyLowersWhatTheSumsAllow) {
  Cluster cluster = cluster_of(4);
  const Group world{"world", 32, 1};
  EXPECT_EQ(ring_path(world, cluster).bandwidth(), ring_path(place(world, cluster), cluster).bandwidth());
  EXPECT_EQ(ring_path(world, cluster).bottleneck(), "ring inside the node, 367 GB/s");
  EXPECT_EQ(ring_path(world, cluster).bottleneck_link(), "node0.gpu0 to node0.nvswitch0");
  cluster.profile.topology = Topology{};
  cluster.profile.topology->nodes_per_leaf = 2;
  cluster.profile.topology->oversubscription = 4;
  const RingPath path = ring_path(world, cluster);
  EXPECT_NEAR(path.bandwidth().base(), 200e9, 1);
  EXPECT_EQ(path.bottleneck(), "leaf0 to spine0, 200 GB/s for a ring");
  EXPECT_EQ(path.bottleneck_link(), "leaf0 to spine0");
  EXPECT_GT(path.inter_latency, microseconds(5));  // half the steps between nodes pass a spine
}

TEST(RingPath, SixteenThousandGpusAreAnalysedQuickly) {
  Cluster cluster = cluster_of(2048);
  cluster.profile.topology = Topology{};
  cluster.profile.topology->nodes_per_leaf = 32;
  cluster.profile.topology->spines = 16;
  cluster.profile.topology->oversubscription = 2;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NEAR(ring_path(Group{"world", 16384, 1}, cluster).network.base(), 400e9, 1);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(seconds, 2);
  std::printf("rings of 16,384 GPUs embedded: %.3f s\n", seconds);
}

}  // namespace
}  // namespace shardsim
