// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/import/gpu_tables.hpp"
#include "calibrate/import/kineto.hpp"
#include "calibrate/import/topo.hpp"
#include "shared_data.hpp"
#include "sim/config/node.hpp"
#include "sim/machine/cluster_graph.hpp"

namespace shardsim {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr const char* topo =
    "\x1b[4m\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
    "GPU0\t X \tNV4\tPIX\tSYS\t0-19\t0\n"
    "GPU1\tNV2\t X \tSYS\tPIX\t20-39\t1\n"
    "NIC0\tPIX\tSYS\t X \tSYS\n"
    "NIC1\tSYS\tPIX\tSYS\t X \n\n"
    "Legend:\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n";

TEST(Topology, ReadsTheMatrix) {
  const auto read = read_topology({"topo.txt", topo});
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_THAT(read->gpus, ::testing::ElementsAre("GPU0", "GPU1"));
  EXPECT_THAT(read->nics, ::testing::ElementsAre("NIC0", "NIC1"));
  EXPECT_EQ(read->gpu_to_nic[1][1], "PIX");
  EXPECT_EQ(read->fewest_nvlinks(), 2);
  const Profile profile = with_topology({}, *read, "topo.txt").profile;
  EXPECT_EQ(profile.node.gpus, 2);
  EXPECT_EQ(profile.network.nics_per_node, 2);
  EXPECT_DOUBLE_EQ(profile.node.ring_bandwidth.base(), 40e9);
  EXPECT_THAT(origin_of(profile, "node.ring_bandwidth"), HasSubstr("derived: rings over NVLinks of 20 GB/s"));
}

std::string nvswitch_matrix(const std::string& word, int gpus = 8) {
  std::string matrix = " ";
  for (int i = 0; i < gpus; ++i) matrix += " GPU" + std::to_string(i);
  for (int i = 0; i < gpus; ++i) {
    matrix += "\nGPU" + std::to_string(i);
    for (int j = 0; j < gpus; ++j) matrix += i == j ? " X" : " " + word;
  }
  return matrix;
}

TEST(Topology, TimesOfTheSameFabricAreKeptAndOthersDropped) {
  Profile base;
  base.gpu.name = "NVIDIA H100 SXM5 80GB";
  base.node.ring_bandwidth = ByteRate{367e9};
  base.network.nics_per_node = 8;
  CollectiveFit one, two;
  one.nodes = 1;
  two.nodes = 2;
  base.collectives = {one, two};
  const ImportedTopology same = with_topology(base, *read_topology({"t", nvswitch_matrix("NV18")}), "t");
  EXPECT_DOUBLE_EQ(same.profile.node.ring_bandwidth.base(), 367e9);
  EXPECT_THAT(same.profile.collectives, SizeIs(2));
  EXPECT_THAT(same.notes, ::testing::IsEmpty());
  const auto bridge = read_topology({"t", " GPU0 GPU1 CPU Affinity\nGPU0 X PHB 0-11\nGPU1 PHB X 0-11\n"});
  const ImportedTopology other = with_topology(base, *bridge, "t");
  EXPECT_DOUBLE_EQ(other.profile.node.ring_bandwidth.base(), 10e9);
  EXPECT_THAT(other.profile.collectives, SizeIs(0));
  EXPECT_THAT(other.notes, ::testing::Contains(HasSubstr("2 measured collectives of the base are left out")));
}

TEST(Topology, BlackwellsNvlinksAreTwiceAsFast) {
  Profile base;
  base.gpu.name = "NVIDIA B200 SXM";
  EXPECT_NEAR(with_topology(base, *read_topology({"t", nvswitch_matrix("NV18")}), "t").profile.node.ring_bandwidth.base(), 721.8e9, 1e6);
  base.gpu.name = "NVIDIA H100";
  EXPECT_NEAR(with_topology(base, *read_topology({"t", nvswitch_matrix("NV18")}), "t").profile.node.ring_bandwidth.base(), 370.8e9, 1e6);
}

TEST(Topology, NvlinksThatNoGpuHasAreProblems) {
  for (const char* word : {"NV0", "NV-18", "NV9999", "NV", "NV1x"})
    EXPECT_THAT(read_topology({"t", nvswitch_matrix(word, 2)}).error().text(), HasSubstr("NV1 to NV18")) << word;
}

TEST(Topology, NicsOfAnyNameAreSeenAndFarOnesLeftOut) {
  const auto read = read_topology({"t",
                                   " GPU0 GPU1 mlx4_0 rdmap16s27 cxi0 CPU Affinity NUMA Affinity\n"
                                   "GPU0 X NV4 PIX NODE SYS 0-9 0\nGPU1 NV4 X NODE PXB SYS 0-9 0\n"});
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_THAT(read->nics, ::testing::ElementsAre("mlx4_0", "rdmap16s27", "cxi0"));
  const ImportedTopology imported = with_topology({}, *read, "t");
  EXPECT_EQ(imported.profile.network.nics_per_node, 2);
  EXPECT_THAT(imported.notes, ::testing::Contains(HasSubstr("cxi0 left out")));
}

TEST(Topology, AHybridCubeMeshHoldsSixLinksOfRings) {
  const auto read = read_topology(*read_source(SHARDSIM_SOURCE_DIR "/tests/fixtures/failing/topo_dgx1v.txt"));
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_NEAR(with_topology({}, *read, "t").profile.node.ring_bandwidth.base(), 120e9, 3e9);  // about 130 GB/s measured
}

TEST(Topology, WhatIsNoMatrixIsAProblem) {
  EXPECT_THAT(read_topology({"t", "hello\n"}).error().text(), HasSubstr("no matrix"));
  EXPECT_THAT(read_topology({"t", "GPU0 GPU1\nGPU0 X\nGPU1 NV1 X\n"}).error().text(), HasSubstr("t:2:1: error: the row has 1 values"));
  EXPECT_THAT(read_topology({"t", "GPU0 GPU1\nGPU0 X NV1\n"}).error().text(), HasSubstr("rows of GPUs are missing"));
}

TEST(Topology, BecomesTheGraphOfANode) {
  const Profile profile = with_topology({}, *read_topology({"topo.txt", topo}), "topo.txt").profile;
  Cluster cluster;
  cluster.profile = profile;
  cluster.profile.network.nic_bandwidth = ByteRate{12.5e9};
  cluster.nodes = cluster.gpus_per_node = cluster.nics_per_node = 2;
  const auto graph = ClusterGraph::expand(cluster);
  ASSERT_TRUE(graph) << graph.error();
  // NV4 one way and NV2 the other: two links of 20 GB/s count.
  EXPECT_EQ(graph->name(0), "node0.gpu0 to node0.gpu1");
  EXPECT_DOUBLE_EQ(graph->capacity(0).base(), 40e9);
  EXPECT_THAT(graph->nics_beside(0), ::testing::ElementsAre(0));
  EXPECT_THAT(graph->nics_beside(1), ::testing::ElementsAre(1));
  const auto back = read_profile(*read_yaml({"p.yaml", to_yaml(profile)}), Completeness::part);
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(back->topology->node_links.size(), profile.topology->node_links.size());
}

TEST(Topology, MoreNvlinksThanAGpuHasForAllPeersAreASwitch) {
  const auto links = links_of(*read_topology({"t", nvswitch_matrix("NV12")}), ByteRate{20e9}, ByteRate{25e9});
  EXPECT_EQ(links[0].from, "gpu[0-7]");
  EXPECT_EQ(links[0].to, "nvswitch0");
  EXPECT_DOUBLE_EQ(links[0].bandwidth.base(), 240e9);
}

TEST(Topology, SharedDumpsAreRead) {
  if (!fs::exists(data() / "inputs/topo")) GTEST_SKIP() << "shared/data/inputs/topo is not here";
  for (const auto& [name, gpus, nvlinks] : {std::tuple{"2gpu_nvlink2.txt", 2u, 2},
                                            {"2gpu_phb.txt", 2u, 0},
                                            {"4x_v100_edr_issue251.txt", 4u, 2},
                                            {"8x_a100_nv12.txt", 8u, 12},
                                            {"8x_h100_nv18.txt", 8u, 18}}) {
    const auto read = read_topology(*read_source((data() / "inputs/topo" / name).string()));
    ASSERT_TRUE(read) << read.error().text();
    EXPECT_THAT(read->gpus, SizeIs(gpus)) << name;
    EXPECT_EQ(read->fewest_nvlinks(), nvlinks) << name;
    Cluster cluster;
    cluster.profile = with_topology({}, *read, name).profile;
    cluster.profile.network.nic_bandwidth = ByteRate{12.5e9};
    cluster.nodes = 2;
    cluster.gpus_per_node = static_cast<std::int64_t>(gpus);
    cluster.nics_per_node = 2;
    const auto graph = ClusterGraph::expand(cluster);
    EXPECT_TRUE(graph) << name << ": " << graph.error();
  }
}

constexpr const char* trace =
    R"json({"deviceProperties": [{"id": 0, "name": "NVIDIA H100"}], "distributedInfo": {"world_size": 4}, "traceEvents": [
 {"ph": "X", "cat": "user_annotation", "name": "nccl:_all_gather_base", "ts": 1, "dur": 5, "args": {"Input Dims": [[1024, 2]], "Input type": ["c10::BFloat16"]}},
 {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", "ts": 20, "dur": 30.5, "args": {}},
 {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_SIMPLE(x)", "ts": 60, "dur": 12, "args":
   {"In msg nelems": 4096, "Out msg nelems": 2048, "Group size": 2, "dtype": "BFloat16"}},
 {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_SIMPLE(x)", "ts": 80, "dur": 10, "args":
   {"In msg nelems": 4096, "Out msg nelems": 2048, "Group size": 2, "dtype": "BFloat16"}},
 {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "ts": 95, "dur": 9, "args": {}},
 {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "ts": 2, "dur": 5, "args": {"External id": 7, "Input Dims": [[64], [128, 256], [256, 64]]}},
 {"ph": "X", "cat": "kernel", "name": "sm90_xmma_gemm", "ts": 30, "dur": 4.5, "args": {"External id": 7}}
]})json";

TEST(Kineto, SizesComeFromKernelsOrFromAnnotations) {
  const auto read = read_kineto({"t.json", trace});
  ASSERT_TRUE(read) << read.error().text();
  EXPECT_EQ(read->gpu, "NVIDIA H100");
  ASSERT_THAT(read->collectives, SizeIs(3));
  EXPECT_EQ(read->collectives[0].payload, Bytes{4 * 4096});  // an all-gather's input is one rank's part
  EXPECT_EQ(read->collectives[0].group.algorithm, "ring");
  EXPECT_EQ(read->collectives[0].group.protocol, "ll");
  EXPECT_EQ(read->collectives[1].payload, Bytes{8192});
  EXPECT_EQ(read->collectives[1].group.ranks, 2);
  ASSERT_THAT(read->products, SizeIs(1));
  EXPECT_EQ(read->products[0].m, 128);
  EXPECT_EQ(read->products[0].n, 64);
  EXPECT_EQ(read->products[0].k, 256);
  EXPECT_NEAR(read->products[0].time.base(), 4.5e-6, 1e-15);
  ASSERT_THAT(read->warnings, SizeIs(1));  // the all-reduce has neither
  EXPECT_THAT(read->warnings[0].message, HasSubstr("1 NCCL kernels left out"));
}

TEST(Kineto, TheShortestCallOfASizeCounts) {
  const auto fits = samples_of(*read_kineto({"t.json", trace}), "t.json").fits();
  ASSERT_THAT(fits, SizeIs(2));
  EXPECT_EQ(fits[1].collective, Collective::reduce_scatter);
  ASSERT_THAT(fits[1].samples, SizeIs(1));
  EXPECT_NEAR(fits[1].samples[0].median.base(), 10e-6, 1e-15);
}

TEST(Kineto, WhatIsNoTraceIsAProblem) {
  EXPECT_THAT(read_kineto({"t", "{"}).error().text(), HasSubstr("no JSON"));
  EXPECT_THAT(read_kineto({"t", "[1]"}).error().text(), HasSubstr("no 'traceEvents'"));
  EXPECT_THAT(read_kineto({"t", R"({"traceEvents": []})"}).error().text(), HasSubstr("record_shapes"));
}

TEST(Products, ReadATableAndFitIt) {
  const auto points = read_products(
      {"gemm.csv", "m,n,k,time_us\n0,8,8,1.0\n16,64,64,3\n2048,4096,4096,120.5\r\n4096,4096,4096,230\n8192,4096,4096,450\n"}, 1024);
  ASSERT_TRUE(points) << points.error().text();
  ASSERT_THAT(*points, SizeIs(3));
  EXPECT_NEAR((*points)[0].time.base(), 120.5e-6, 1e-12);
  Profile base;
  base.gpu.peak = {{DType::bf16, FlopRate{989e12}}};
  base.gpu.memory_bandwidth = ByteRate{3.35e12};
  const Profile fitted = with_products(base, *points, 2, "gemm.csv");
  EXPECT_THAT(fitted.gpu.gemm.table, SizeIs(2));
  EXPECT_GT(fitted.gpu.gemm.efficiency, 0.5);
  EXPECT_THAT(origin_of(fitted, "gpu.gemm"), HasSubstr("fitted: 3 products of gemm.csv"));
}

TEST(Products, BrokenTablesAreProblemsWithTheirLine) {
  EXPECT_THAT(read_products({"g.csv", "a,b\n1,2\n"}, 1).error().text(), HasSubstr("g.csv:1:1: error: the header must be"));
  EXPECT_THAT(read_products({"g.csv", "m,n,k,time_us\n1,2,x,4\n"}, 1).error().text(), HasSubstr("g.csv:2:1"));
  EXPECT_THAT(read_products({"g.csv", "m,n,k,time_us\n1,2,3,4\n"}, 1024).error().text(), HasSubstr("fewer than three"));
}

}  // namespace
}  // namespace shardsim
