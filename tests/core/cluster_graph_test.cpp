// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/cluster_graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace shardsim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Cluster cluster_of(std::int64_t nodes, std::int64_t gpus, std::int64_t nics) {
  Cluster cluster;
  cluster.nodes = nodes;
  cluster.gpus_per_node = gpus;
  cluster.nics_per_node = nics;
  cluster.profile.node.gpus = 8;
  cluster.profile.node.ring_bandwidth = ByteRate{367e9};
  cluster.profile.node.intra_latency = microseconds(1);
  cluster.profile.gpu.host_link = ByteRate{54e9};
  cluster.profile.network.nics_per_node = static_cast<std::int32_t>(nics);
  cluster.profile.network.nic_bandwidth = ByteRate{50e9};
  cluster.profile.network.inter_latency = microseconds(5);
  return cluster;
}

Topology topology(const std::string& yaml) {
  const auto root = read_yaml({"t.yaml", yaml});
  Problems problems;
  Topology result = read_topology_block(*root, problems);
  EXPECT_EQ(problems.text(), "");
  return result;
}

std::string problems_of(const std::string& yaml) {
  const auto root = read_yaml({"t.yaml", yaml});
  Problems problems;
  (void)read_topology_block(*root, problems);
  return problems.text();
}

std::string error_of(const Cluster& cluster) {
  const auto graph = ClusterGraph::expand(cluster);
  return graph ? "" : graph.error();
}

TEST(DeviceNames, BracketsHoldRangesAndLists) {
  EXPECT_THAT(*device_names("gpu[0-2]"), ElementsAre("gpu0", "gpu1", "gpu2"));
  EXPECT_THAT(*device_names("nic[0,4-5]"), ElementsAre("nic0", "nic4", "nic5"));
  EXPECT_THAT(*device_names("spine0"), ElementsAre("spine0"));
  for (const char* bad : {"", "gpu[", "gpu[]", "gpu[3-1]", "gpu[0-2]x", "gpu[a]", "g pu", "gpu[0-99999999]"})
    EXPECT_FALSE(device_names(bad)) << bad;
}

TEST(ClusterGraph, TwoLinesExpandToGpusSwitchesAndNics) {
  const auto graph = ClusterGraph::expand(cluster_of(4, 8, 8));
  ASSERT_TRUE(graph) << graph.error();
  EXPECT_EQ(graph->nodes(), 4);
  EXPECT_EQ(graph->node().gpus.size(), 8u);
  EXPECT_EQ(graph->node().nics.size(), 8u);
  // 8 GPUs, one NVSwitch, 8 PCIe switches, 8 NICs, one host; a cable from each GPU to NVSwitch and PCIe, from each NIC and switch upwards.
  EXPECT_EQ(graph->node().names.size(), 26u);
  EXPECT_EQ(graph->node().links.size(), 2u * (8 + 8 + 8 + 8));
  EXPECT_THAT(graph->network().names, ElementsAre("leaf0"));
  EXPECT_THAT(graph->nics_beside(3), ElementsAre(3));
}

TEST(ClusterGraph, APairOfGpusSharesANic) {
  const auto graph = ClusterGraph::expand(cluster_of(2, 8, 4));
  ASSERT_TRUE(graph) << graph.error();
  EXPECT_THAT(graph->nics_beside(4), ElementsAre(2));
  EXPECT_THAT(graph->nics_beside(5), ElementsAre(2));
}

TEST(ClusterGraph, OneGpuOfANodeReachesOneNicOfEight) {
  EXPECT_EQ(nics_in_use(cluster_of(4, 1, 8)), 1);
  EXPECT_EQ(nics_in_use(cluster_of(4, 8, 8)), 8);
  EXPECT_EQ(nics_in_use(cluster_of(2, 1, 32)), 4);
}

TEST(ClusterGraph, NvlinkIsTakenBeforePcie) {
  const auto graph = ClusterGraph::expand(cluster_of(1, 8, 8));
  ASSERT_TRUE(graph);
  LinkLoads loads(graph->link_count(), 0);
  graph->load_inside(0, graph->node().gpus[0], graph->node().gpus[5], 1, loads);
  EXPECT_EQ(std::ranges::count_if(loads, [](double l) { return l > 0; }), 2);
  const auto first = std::ranges::find(loads, 1.0);
  EXPECT_EQ(graph->name(static_cast<std::size_t>(first - loads.begin())), "node0.gpu0 to node0.nvswitch0");
}

TEST(ClusterGraph, PathsBetweenLeavesAreSplitOverTheSpines) {
  Cluster cluster = cluster_of(4, 8, 8);
  cluster.profile.topology = topology("{nodes_per_leaf: 2, oversubscription: 4, spines: 2, spine_latency: 1 us}");
  const auto graph = ClusterGraph::expand(cluster);
  ASSERT_TRUE(graph) << graph.error();
  EXPECT_THAT(graph->network().names, ElementsAre("leaf0", "leaf1", "spine0", "spine1"));
  // 2 nodes x 8 NICs x 50 GB/s / 4 over two spines.
  EXPECT_DOUBLE_EQ(graph->network().links[0].capacity.base(), 100e9);
  LinkLoads loads(graph->link_count(), 0);
  EXPECT_DOUBLE_EQ(graph->load_across(0, 1, 0, 1, loads).base(), 5e-6);  // under one leaf
  EXPECT_DOUBLE_EQ(graph->load_across(0, 2, 0, 1, loads).base(), 7e-6);  // up to a spine and down
  EXPECT_EQ(std::ranges::count(loads, 0.5), 4);                          // leaf0 to both spines, both spines to leaf1
}

TEST(ClusterGraph, ScatteredNodesStandOnDifferentLeaves) {
  Cluster cluster = cluster_of(4, 8, 8);
  cluster.profile.topology = topology("{nodes_per_leaf: 2, placement: scattered, spine_latency: 1 us}");
  const auto graph = ClusterGraph::expand(cluster);
  ASSERT_TRUE(graph) << graph.error();
  LinkLoads loads(graph->link_count(), 0);
  EXPECT_DOUBLE_EQ(graph->load_across(0, 1, 0, 1, loads).base(), 7e-6);
  EXPECT_DOUBLE_EQ(graph->load_across(0, 2, 0, 1, loads).base(), 5e-6);
}

TEST(ClusterGraph, RailsHaveLeavesOfTheirOwn) {
  Cluster cluster = cluster_of(4, 8, 8);
  cluster.profile.topology = topology("{rails: true, nodes_per_leaf: 4}");
  const auto graph = ClusterGraph::expand(cluster);
  ASSERT_TRUE(graph) << graph.error();
  EXPECT_EQ(graph->network().names.size(), 9u);
  LinkLoads loads(graph->link_count(), 0);
  graph->load_across(0, 3, 5, 1, loads);
  const auto first = std::ranges::find(loads, 1.0);
  EXPECT_EQ(graph->name(static_cast<std::size_t>(first - loads.begin())), "node0.nic5 to rail5leaf0");
}

TEST(ClusterGraph, AFullDescriptionIsTakenAsItIs) {
  Cluster cluster = cluster_of(3, 4, 4);
  cluster.profile.topology = topology(R"(
node_links:
  - {from: "gpu[0-3]", to: "pcie[0-1]", bandwidth: 25 GB/s, latency: 1 us, wiring: blocks}
  - {from: "pcie[0-1]", to: host0, bandwidth: 20 GB/s}
  - {from: nic0, to: pcie0, bandwidth: 25 GB/s}
links:
  - {from: "node*.nic0", to: leaf0, bandwidth: 12.5 GB/s, latency: 2 us}
  - {from: "node2.nic0", to: leaf1, bandwidth: 1 GB/s}
)");
  EXPECT_EQ(error_of(cluster), "node2.nic0 has two cables: describe it as two NICs");
  cluster.profile.topology->links[0].from = "node[0-1].nic0";
  EXPECT_EQ(error_of(cluster), "no path leads from node0.nic0 to node2.nic0");
  cluster.profile.topology->links.push_back({"leaf0", "leaf1", ByteRate{10e9}, microseconds(3), Wiring::all});
  const auto graph = ClusterGraph::expand(cluster);
  ASSERT_TRUE(graph) << graph.error();
  LinkLoads loads(graph->link_count(), 0);
  EXPECT_DOUBLE_EQ(graph->load_across(0, 2, 0, 1, loads).base(), 5e-6);
  EXPECT_THAT(graph->nics_beside(2), ElementsAre(0));
}

TEST(ClusterGraph, WhatIsMissingIsNamed) {
  Cluster cluster = cluster_of(2, 8, 8);
  cluster.profile.topology = topology("node_links: [{from: 'gpu[0-3]', to: nvswitch0, bandwidth: 300 GB/s}]");
  EXPECT_EQ(error_of(cluster), "8 GPUs of each node are in use, and the topology has 4");
  cluster.profile.topology = topology("node_links: [{from: 'gpu[0-7]', to: 'nvswitch[0-1]', bandwidth: 300 GB/s, wiring: blocks}]");
  cluster.nodes = 1;
  EXPECT_EQ(error_of(cluster), "no path leads from gpu0 to gpu4");
  cluster.nodes = 2;
  cluster.profile.topology = topology("links: [{from: node0.nic0, to: leaf0, bandwidth: 50 GB/s}]");
  EXPECT_EQ(error_of(cluster), "node0.nic1 is joined to no switch");
  cluster.profile.topology = topology("links: [{from: 'node*.nic9', to: leaf0, bandwidth: 50 GB/s}]");
  EXPECT_EQ(error_of(cluster), "node0 has no 'nic9'");
}

TEST(TopologyBlock, BadKeysAndNamesAreProblemsWhereTheyStand) {
  EXPECT_THAT(problems_of("{nodes_per_leaf: 0}"), HasSubstr("nodes_per_leaf"));
  EXPECT_THAT(problems_of("{oversubscription: 2}"), HasSubstr("'nodes_per_leaf' is missing"));
  EXPECT_THAT(problems_of("{spine: 2, nodes_per_leaf: 4}"), HasSubstr("unknown key 'spine'"));
  EXPECT_THAT(problems_of("links: [{from: 'node*.nic[0-', to: leaf0, bandwidth: 50 GB/s}]"), HasSubstr("']' is missing"));
  EXPECT_THAT(problems_of("links: [{from: rack0.nic0, to: leaf0, bandwidth: 50 GB/s}]"), HasSubstr("a node and a device of it"));
  EXPECT_THAT(problems_of("links: [{from: nic0, bandwidth: 50 GB/s}]"), HasSubstr("'to'"));
  EXPECT_THAT(problems_of("{nodes_per_leaf: 2, links: [{from: node*.nic0, to: leaf0, bandwidth: 50 GB/s}]}"), HasSubstr("choose one"));
}

TEST(TopologyBlock, ReadsBackFromTheProfileThatHoldsIt) {
  Profile part;
  part.name = "wired";
  part.topology = topology(R"(
placement: scattered
node_links:
  - {from: "gpu[0-3]", to: "pcie[0-1]", bandwidth: 25 GB/s, latency: 1 us, wiring: blocks}
links:
  - {from: "node*.nic[0-1]", to: "leaf[0-1]", bandwidth: 12.5 GB/s, latency: 2 us, wiring: modulo}
)");
  const std::string yaml = to_yaml(part);
  const auto back = read_profile(*read_yaml({"p.yaml", yaml}), Completeness::part);
  ASSERT_TRUE(back) << back.error().text();
  ASSERT_TRUE(back->topology);
  EXPECT_EQ(to_yaml(*back), yaml);
  EXPECT_TRUE(back->topology->scattered);
  EXPECT_EQ(back->topology->links[0].wiring, Wiring::modulo);
}

}  // namespace
}  // namespace shardsim
