// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/cost_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "sim/engine/engine.hpp"
#include "sim/schedule/schedule_builder.hpp"

namespace shardsim {
namespace {

using ::testing::HasSubstr;

Cluster shipped(const std::string& name, std::int64_t nodes, std::int64_t gpus = 8) {
  const auto source = read_source(SHARDSIM_SOURCE_DIR "/scenarios/clusters/" + name + ".yaml");
  Cluster cluster;
  cluster.profile = *read_profile(*read_yaml(*source));
  cluster.nodes = nodes;
  cluster.gpus_per_node = gpus;
  cluster.nics_per_node = gpus;
  return cluster;
}

/// 100 TFLOP/s, 1 TB/s, everything else ideal.
Cluster ideal() {
  Cluster cluster;
  Gpu& gpu = cluster.profile.gpu;
  gpu.peak = {{DType::bf16, FlopRate{100e12}}, {DType::fp32, FlopRate{10e12}}};
  gpu.memory_bandwidth = ByteRate{1e12};
  gpu.gemm = {.launch = microseconds(3), .efficiency = 0.5, .memory_efficiency = 0.5, .table = {}};
  gpu.elementwise_efficiency = 0.5;
  gpu.attention_efficiency = 0.5;
  gpu.attention_backward_efficiency = 0.25;
  gpu.device_kernel_gap = microseconds(1);
  gpu.host_link = ByteRate{10e9};
  return cluster;
}

TEST(Product, LargeOnesReachTheEfficiencyAndSmallOnesTheLaunch) {
  const CostModel model(ideal());
  // 2 * 8192^3 FLOPs at 50 TFLOP/s = 21.99 ms; memory time is 1/27 of it and lengthens it by less than a part in 10^4.
  EXPECT_NEAR(model.product({8192, 8192, 8192}, DType::bf16).base(), 21.99e-3, 0.02e-3);
  EXPECT_NEAR(model.product({1, 32, 32}, DType::bf16).base(), 3e-6, 0.01e-6);
  // One row: bound by reading the weight, 2 * 8192^2 bytes at 0.5 TB/s = 268 us.
  EXPECT_NEAR(model.product({1, 8192, 8192}, DType::bf16).base(), 271e-6, 1e-6);
}

TEST(Product, UsesThePeakOfItsFormat) {
  const CostModel model(ideal());
  EXPECT_NEAR(model.product({8192, 8192, 8192}, DType::fp32) / model.product({8192, 8192, 8192}, DType::bf16), 10, 0.01);
  EXPECT_EQ(model.product({8192, 8192, 8192}, DType::fp16), model.product({8192, 8192, 8192}, DType::bf16));
}

TEST(Product, AWaveThatIsNotFullTakesAsLongAsAFullOne) {
  Cluster cluster = ideal();
  cluster.profile.gpu.multiprocessors = 132;
  cluster.profile.gpu.gemm.tile_m = cluster.profile.gpu.gemm.tile_n = 128;
  cluster.profile.gpu.gemm.launch = Seconds{};
  cluster.profile.gpu.memory_bandwidth = ByteRate{1e18};  // out of the way
  const CostModel model(cluster);
  const Seconds one_wave = model.product({128 * 11, 128 * 12, 65536}, DType::bf16);       // 132 tiles
  const Seconds two_waves = model.product({128 * 11, 128 * 12 + 1, 65536}, DType::bf16);  // 143 tiles
  EXPECT_NEAR(two_waves / one_wave, 2.0, 0.02);
}

TEST(Product, MultiprocessorsTakenByACollectiveMakeASecondWave) {
  Cluster cluster = ideal();
  cluster.profile.gpu.gemm = {.launch = {}, .efficiency = 0.8, .memory_efficiency = 0.8, .tile_m = 128, .tile_n = 128, .table = {}};
  cluster.profile.gpu.memory_bandwidth = ByteRate{1e18};   // out of the way
  const MatrixProduct tiles{128 * 11, 128 * 12, 1 << 20};  // 132 of them
  cluster.profile.gpu.multiprocessors = 132;
  const Seconds alone = CostModel(cluster).product(tiles, DType::bf16);
  // 24 multiprocessors less, and their share of the peak: two waves of the same length instead of one.
  cluster.profile.gpu.multiprocessors = 132 - 24;
  cluster.profile.gpu.peak[DType::bf16] = FlopRate{100e12 * 108 / 132};
  EXPECT_NEAR(CostModel(cluster).product(tiles, DType::bf16) / alone, 2.0, 1e-3);
}

TEST(Overlap, ASlowdownOf189ThousandthsLengthensAFullyOverlappedStepByThat) {
  ScheduleBuilder b;
  const StreamId comm = b.stream("comm");
  const CommunicatorId world = b.communicator("world", "world", 8);
  b.communicate({"all_gather", {}}, comm, {.communicator = world, .payload = Elements{1}, .source = {}, .target = {}, .offset = {}});
  b.compute({"forward", {}}, b.work({}), Pass::forward, {});
  const std::array costs{OpCost{.device = SimTime{3'000'000'000}, .host = {}, .collective = true},
                         OpCost{.device = SimTime{1'000'000'000}, .host = {}, .compute = true}};
  const RankProgram program = priced_op_by_op(b.schedule(), costs);
  const auto timelines = simulate(std::span(&program, 1), {.overlap_slowdown = 0.189});
  const auto compute = std::ranges::find(timelines[0].slices, OpId{1}, &Slice::op);
  ASSERT_NE(compute, timelines[0].slices.end());
  EXPECT_EQ((compute->end - compute->begin).picoseconds(), 1'189'000'000);
}

TEST(Product, AMeasuredShapeComesOutAsMeasured) {
  Cluster cluster = ideal();
  cluster.profile.gpu.gemm.table = {{4096, 4096, 4096, microseconds(4000)}, {128, 128, 128, microseconds(9)}};
  const CostModel model(cluster);
  EXPECT_NEAR(model.product({4096, 4096, 4096}, DType::bf16).base(), 4000e-6, 1e-9);
  EXPECT_NEAR(model.product({128, 128, 128}, DType::bf16).base(), 9e-6, 1e-12);
}

TEST(WorkTime, AddsProductsAttentionMemoryAndGaps) {
  Work work;
  work.attention = {{.flops = Flops{50e9}, .density = 0.5}, {.flops = Flops{50e9}, .density = 0.5, .backward = true}};
  work.memory = Bytes{1'000'000};
  work.kernels = 4;
  // 25e9 / 50e12 = 500 us; 25e9 / 25e12 = 1000 us; two launches 6 us; 1 MB at 0.5 TB/s = 2 us; gaps 4 us.
  EXPECT_NEAR(CostModel(ideal()).work(work).base(), 1512e-6, 1e-12);
}

TEST(CopyTime, ReadsAndWritesCrossHbmOrTheHostLink) {
  const CostModel model(ideal());
  EXPECT_NEAR(model.copy(Bytes{1'000'000}, Bytes{2'000'000}, CopyPath::device).base(), 6e-6, 1e-12);
  EXPECT_NEAR(model.copy(Bytes{1'000'000}, Bytes{2'000'000}, CopyPath::to_host).base(), 200e-6, 1e-12);
}

TEST(CollectiveTime, AFitAtThisGroupComesFirst) {
  const CostModel model(shipped("h100-sxm", 1));
  const auto time = model.collective(Collective::all_gather, mebibytes(64), {"world", 8, 1});
  EXPECT_NEAR(time.time.seconds().base(), 36.4e-6 + 67108864 / 388.3e9, 1e-9);
  EXPECT_EQ(time.model, "calibrated, 8 ranks on 1 node");
  EXPECT_EQ(time.algorithm, "ring");
}

TEST(CollectiveTime, APinnedRingIsLearntFromItsHalvesNotFromAnNvlsFit) {
  Cluster cluster = shipped("h100-sxm", 1);
  cluster.profile.network.all_reduce_algorithm = "ring";
  const CostModel model(cluster);
  const Group world{"world", 8, 1};
  const auto time = model.collective(Collective::all_reduce, mebibytes(512), world);
  EXPECT_EQ(time.algorithm, "ring");
  EXPECT_EQ(time.model, "learnt from calibrated all_gather and reduce_scatter, 8 ranks on 1 node");
  const Seconds halves = model.collective(Collective::all_gather, mebibytes(512), world).time.seconds() +
                         model.collective(Collective::reduce_scatter, mebibytes(512), world).time.seconds();
  EXPECT_NEAR(time.time.seconds() / halves, 1, 0.02);
}

TEST(CollectiveTime, WithoutAFitTheClosedFormNamesItsBottleneck) {
  const CostModel model(shipped("h100-sxm", 8));
  const auto world = model.collective(Collective::all_gather, gibibytes(1), {"world", 64, 1});
  EXPECT_EQ(world.model, "ring alpha-beta, 64 ranks on 8 nodes");
  EXPECT_THAT(world.bottleneck, HasSubstr("ring inside the node"));
  EXPECT_GT(world.share[static_cast<std::size_t>(Resource::network)], 0.8F);
  const auto replicas = model.collective(Collective::all_reduce, gibibytes(1), {"replicate", 8, 8});
  EXPECT_EQ(replicas.bottleneck, "1 NIC x 50.0 GB/s");
  EXPECT_EQ(replicas.share[static_cast<std::size_t>(Resource::intra_node)], 0.0F);
}

TEST(CollectiveTime, SmallAllReducesOnManyNodesTakeTheTree) {
  const CostModel model(shipped("h100-sxm", 128));
  const auto norm = model.collective(Collective::all_reduce, Bytes{4}, {"world", 1024, 1});
  EXPECT_EQ(norm.algorithm, "tree");
  EXPECT_LT(norm.time.seconds(), microseconds(120));
}

TEST(CollectiveTime, AFitOfAFasterNetworkWinsAndIsDoubted) {
  Cluster cluster = shipped("h100-sxm", 2);
  CollectiveFit fit;
  fit.collective = Collective::all_reduce;
  fit.ranks = 16;
  fit.nodes = 2;
  fit.segments = {{std::nullopt, microseconds(50), ByteRate{180e9}}};
  cluster.profile.collectives.push_back(fit);
  EXPECT_THAT(CostModel(cluster).collective(Collective::all_reduce, gibibytes(1), {"world", 16, 1}).model, HasSubstr("calibrated"));
  cluster.profile.network.nic_bandwidth = ByteRate{3e9};
  const CollectiveTime time = CostModel(cluster).collective(Collective::all_reduce, gibibytes(1), {"world", 16, 1});
  EXPECT_THAT(time.model, HasSubstr("calibrated"));
  EXPECT_NEAR(time.time.seconds().base(), 50e-6 + 1073741824 / 180e9, 1e-9);
  EXPECT_THAT(time.doubt, HasSubstr("6.02 ms measured"));  // and S / (8 x 3 GB/s)
  EXPECT_THAT(time.doubt, HasSubstr("44.7 ms"));
}

TEST(CollectiveTime, MoreNetworkIsNeverSlower) {
  Seconds last{1e9};
  for (const double gbit : {25., 100., 200., 400., 3200.}) {
    Cluster cluster = shipped("h100-sxm", 8);
    cluster.profile.network.nic_bandwidth = ByteRate{gbit * 1e9 / 8};
    const Seconds time = CostModel(cluster).collective(Collective::reduce_scatter, mebibytes(256), {"world", 64, 1}).time.seconds();
    EXPECT_LE(time, last) << gbit;
    last = time;
  }
}

/// By op of the schedule, as a replay has them.
std::vector<OpCost> costs_of(const CostModel& model, const Schedule& schedule) {
  RankProgram program{std::make_shared<const ReplayProgram>(schedule), {}};
  program.prices = model.prices(*program.program);
  std::vector<OpCost> costs;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) costs.push_back(program.cost(OpId{static_cast<std::int32_t>(i)}));
  return costs;
}

TEST(Costs, EveryOpHasACostAndEqualOnesAreEqual) {
  ScheduleBuilder b;
  const StreamId comm = b.stream("comm");
  const CommunicatorId world = b.communicator("world", "world", 8);
  Work work;
  work.products = {{1024, 1024, 1024, 1}};
  work.kernels = 3;
  const WorkId id = b.work(work);
  const Buffer buffer{.label = {"buffer", {}}, .dtype = DType::fp32, .pool = {}, .layout = {}, .elements = Elements{1 << 20}};
  const BufferId full = b.allocate(buffer);
  b.compute({"forward", {}}, id, Pass::forward, {});
  b.compute({"forward", {}}, id, Pass::forward, {});
  b.communicate({"all_reduce", {}}, comm,
                {.communicator = world, .dtype = DType::fp32, .payload = Elements{1 << 20}, .source = {}, .target = full, .offset = {}});
  b.copy({"zero", {}}, b.compute_stream(), {.source = {}, .target = full, .count = Elements{1 << 20}});
  b.free(full);
  const CostModel model(shipped("a100-sxm-80", 1));
  const auto costs = costs_of(model, b.schedule());
  EXPECT_EQ(costs[1].device, SimTime::from(model.work(work)));
  EXPECT_EQ(costs[1].device, costs[2].device);
  EXPECT_EQ(costs[1].host, SimTime::from(microseconds(13.5)));
  EXPECT_TRUE(costs[1].compute);
  EXPECT_TRUE(costs[3].collective);
  EXPECT_EQ(costs[3].device, model.collective(Collective::all_reduce, mebibytes(4), {"world", 8, 1}).time);
  EXPECT_NEAR(costs[4].device.seconds().base(), 1e-6 + 4194304 / (2.039e12 * 0.79), 1e-11);
  EXPECT_EQ(costs[5].device, SimTime{});
}

TEST(Costs, OpsAreToldApartByWhateverTheirCostDependsOn) {
  ScheduleBuilder b;
  const StreamId comm = b.stream("comm");
  const CommunicatorId world = b.communicator("world", "world", 8), pair = b.communicator("pair", "pair", 2);
  Work small, large;
  small.memory = mebibytes(1);
  large.memory = mebibytes(64);
  const WorkId one = b.work(small), other = b.work(large);
  const BufferId wide = b.buffer({.dtype = DType::fp32, .elements = Elements{4096}});
  const BufferId narrow = b.buffer({.dtype = DType::bf16, .elements = Elements{4096}});
  for (const WorkId work : {one, other, WorkId{}}) b.compute({"compute", {}}, work, Pass::forward, {});
  for (const bool on_host : {false, true}) b.update({"update", {}}, b.compute_stream(), {.work = one, .on_host = on_host});
  for (const CommunicatorId c : {world, pair})
    for (const Collective kind : {Collective::all_reduce, Collective::all_gather})
      for (const DType type : {DType::bf16, DType::fp32})
        b.communicate({"collective", {}}, comm, {.kind = kind, .communicator = c, .dtype = type, .payload = Elements{1 << 20}});
  for (const BufferId source : {BufferId{}, wide, narrow})
    for (const BufferId target : {wide, narrow})
      for (const CopyPath path : {CopyPath::device, CopyPath::to_host})
        for (const bool add : {false, true})
          for (const std::int32_t kernels : {1, 2})
            b.copy({"copy", {}}, comm,
                   {.source = source, .target = target, .count = Elements{4096}, .path = path, .accumulate = add, .kernels = kernels});
  const CostModel model(shipped("h100-sxm", 1));
  const auto costs = costs_of(model, b.schedule());
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const OpCost alone = model.cost(b.schedule().ops[i], b.schedule());
    EXPECT_EQ(std::tuple(costs[i].device, costs[i].host, costs[i].share, costs[i].compute, costs[i].collective),
              std::tuple(alone.device, alone.host, alone.share, alone.compute, alone.collective))
        << i;
  }
}

}  // namespace
}  // namespace shardsim
