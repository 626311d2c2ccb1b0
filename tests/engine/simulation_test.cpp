// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/simulation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/engine/prepared_step.hpp"
#include "sim/schedule/schedule_builder.hpp"

namespace shardsim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// One node of 8: 100 TFLOP/s, 1 TB/s of HBM, a 100 GB/s ring, no latencies.
Cluster plain_cluster() {
  Cluster cluster;
  Gpu& gpu = cluster.profile.gpu;
  gpu.capacity = gibibytes(1);
  gpu.peak = {{DType::bf16, FlopRate{100e12}}};
  gpu.memory_bandwidth = ByteRate{1e12};
  gpu.elementwise_efficiency = 1;
  gpu.gemm = {.launch = Seconds{}, .efficiency = 1, .memory_efficiency = 1, .table = {}};
  gpu.kernel_launch = gpu.collective_launch = gpu.device_kernel_gap = Seconds{};
  gpu.overlap_slowdown = 0;
  gpu.host_link = ByteRate{10e9};
  cluster.profile.node = {
      .gpus = 8, .ring_bandwidth = ByteRate{100e9}, .intra_latency = {}, .host_memory = {}, .host_memory_bandwidth = {}};
  return cluster;
}

/// Backward of `memory_ms` milliseconds, then a reduce-scatter of 7 ms beside another backward, then an optimizer step of 1 ms.
std::shared_ptr<const Schedule> plain_schedule(std::int64_t memory_ms, std::int32_t kernels = 1) {
  ScheduleBuilder b;
  b.schedule().strategy = "hand-made";
  b.schedule().world_size = 8;
  b.schedule().warnings = {"from the strategy"};
  b.schedule().differs_because = "padding";
  const StreamId side = b.stream("reduce_scatter");
  const CommunicatorId shard = b.communicator("shard", "shard", 8);
  b.communicator("alone", "alone", 1);
  b.buffer({.label = {"weights", {}}, .category = Category::parameters, .persistent = true, .elements = Elements{50'000'000}});
  const WorkId work = b.work(
      {.products = {{1000, 1000, 50'000}}, .attention = {}, .memory = Bytes{memory_ms * 1'000'000'000 - 900'000'000}, .kernels = kernels});
  const WorkId step = b.work({.products = {}, .attention = {}, .memory = Bytes{1'000'000'000}, .kernels = 1});
  b.phase(Phase::backward);
  const BufferId gradient =
      b.allocate({.label = {"gradient", {}}, .category = Category::unsharded_gradients, .elements = Elements{400'000'000}});
  b.compute({"backward", {}}, work, Pass::backward, {});
  b.wait_stream(side, ScheduleBuilder::compute_stream());
  b.communicate({"reduce", {}}, side,
                {.kind = Collective::reduce_scatter, .communicator = shard, .payload = Elements{400'000'000}, .source = gradient});
  b.compute({"backward", {}}, work, Pass::backward, {});
  b.wait_stream(ScheduleBuilder::compute_stream(), side);
  b.free(gradient);
  b.phase(Phase::step);
  b.update({"step", {}}, ScheduleBuilder::compute_stream(), {.work = step});
  return std::make_shared<const Schedule>(std::move(b).take());
}

JobFacts facts() {
  return {.model_name = "plain",
          .parameters = Elements{400'000'000},
          .trainable_parameters = Elements{400'000'000},
          .tokens_per_step_per_rank = Tokens{4096},
          .model_flops_per_step = Flops{2e11},
          .flop_convention = "6N",
          .compute = DType::bf16,
          .textbook_bytes = Bytes{123}};
}

// Each backward: 2 * 1000 * 1000 * 50,000 FLOPs = 1 ms on the tensor cores (the 0.1 of HBM for its operands is hidden), and its
// memory-bound kernels.
TEST(Simulation, TimeOfTheStepAddsUp) {
  const SimulationResult r = run_simulation(plain_schedule(3), CostModel(plain_cluster()), facts(), {.timeline = true});
  const double backward = r.timeline.slices.front().end.seconds().base();
  EXPECT_NEAR(backward, 3.1e-3, 0.03e-3);
  EXPECT_NEAR(r.step.compute.base(), 2 * backward, 1e-9);
  EXPECT_NEAR(r.step.communication.base(), 7e-3, 1e-9);  // 7/8 of 800 MB at 100 GB/s
  EXPECT_NEAR(r.step.exposed_communication.base(), 7e-3 - backward, 1e-9);
  EXPECT_NEAR(r.step.optimizer.base(), 1e-3, 1e-9);
  EXPECT_EQ(r.step.host_bound.base(), 0);
  EXPECT_NEAR(r.step.time.base(), backward + 7e-3 + 1e-3, 1e-9);
  EXPECT_EQ(r.step.bound_by, "compute");  // 7.2 ms of kernels, 7 ms of collectives
}

TEST(Simulation, RatesFollowFromTheTime) {
  const SimulationResult r = run_simulation(plain_schedule(3), CostModel(plain_cluster()), facts());
  EXPECT_DOUBLE_EQ(r.step.tokens_per_second_per_gpu, 4096 / r.step.time.base());
  EXPECT_DOUBLE_EQ(r.step.tokens_per_second, 8 * 4096 / r.step.time.base());
  EXPECT_DOUBLE_EQ(r.step.mfu, 2e11 / 100e12 / r.step.time.base());
  EXPECT_DOUBLE_EQ(r.step.hardware_flops.base(), 2 * 2e3 * 1e3 * 5e4);
  EXPECT_DOUBLE_EQ(r.step.hfu, r.step.mfu);
  EXPECT_EQ(r.step.flop_convention, "6N");
}

TEST(Simulation, NamesWhatIsAtWorkLongest) {
  const CostModel model(plain_cluster());
  EXPECT_THAT(run_simulation(plain_schedule(1), model, facts()).step.bound_by, StartsWith("communication: "));
  EXPECT_EQ(run_simulation(plain_schedule(10), model, facts()).step.bound_by, "compute");
  Cluster slow_host = plain_cluster();
  slow_host.profile.gpu.kernel_launch = microseconds(100);
  const StepTime step = run_simulation(plain_schedule(3, 100), CostModel(slow_host), facts()).step;
  EXPECT_EQ(step.bound_by, "host: kernel launches");
  EXPECT_NEAR(step.host_bound.base(), 10e-3, 1e-9);  // before the first backward; the second is issued while the reduction runs
  EXPECT_NEAR((step.compute + step.exposed_communication + step.host_bound + step.optimizer).base(), step.time.base(), 1e-12);
}

TEST(Simulation, MemoryThatTheDriverSees) {
  Cluster cluster = plain_cluster();
  cluster.profile.overheads = {.context = mebibytes(50), .nccl_per_communicator = mebibytes(20), .cublas_workspace = mebibytes(9)};
  const SimulationResult r = run_simulation(plain_schedule(3), CostModel(cluster), facts());
  const Memory& m = r.memory;
  const Bytes held{100'000'256}, gradient{800'000'000};  // rounded up to 512
  EXPECT_EQ(m.peak, held + gradient + mebibytes(9));
  EXPECT_EQ(sum(m.at_peak), m.peak);
  EXPECT_EQ(m.resident, held + mebibytes(9));
  EXPECT_EQ(m.overhead, mebibytes(50 + 20));  // the communicator of one rank is never built
  EXPECT_GE(m.reserved_peak, m.peak);
  EXPECT_EQ(m.device_peak, m.reserved_peak + m.overhead);
  EXPECT_EQ(m.capacity, gibibytes(1));
  EXPECT_TRUE(m.fits);
  EXPECT_THAT(r.warnings, ElementsAre("from the strategy"));
  cluster.profile.gpu.capacity = mebibytes(900);
  const SimulationResult tight = run_simulation(plain_schedule(3), CostModel(cluster), facts());
  EXPECT_FALSE(tight.memory.fits);
  EXPECT_THAT(tight.warnings, ElementsAre("from the strategy", HasSubstr("does not fit")));
}

TEST(Simulation, ReservedFollowsTheAllocatorOrTheSimpleRule) {
  const CostModel model(plain_cluster());
  // 100 MB and 800 MB, each in a segment of its own, rounded up to a multiple of 2 MiB; the rests of 0.6 and 0.1 MiB are not split off.
  EXPECT_EQ(run_simulation(plain_schedule(3), model, facts()).memory.reserved_peak, mebibytes(96 + 764));
  // One pool: 858.3 MiB in all.
  EXPECT_EQ(run_simulation(plain_schedule(3), model, facts(), {.allocator = std::nullopt}).memory.reserved_peak, mebibytes(860));
}

TEST(Simulation, WarnsWhereTheCacheMustGoBack) {
  ScheduleBuilder b;
  const StreamId side = b.stream("side");
  for (const StreamId pool : {side, ScheduleBuilder::compute_stream()}) {
    b.free(b.allocate({.label = {"a", {}}, .dtype = DType::int8, .pool = pool, .elements = Elements{40 << 20}}));
  }
  Cluster cluster = plain_cluster();
  cluster.profile.gpu.capacity = mebibytes(64);
  const auto schedule = std::make_shared<const Schedule>(std::move(b).take());
  const SimulationResult r = run_simulation(schedule, CostModel(cluster), facts());
  EXPECT_EQ(r.memory.reserved_peak, mebibytes(40));
  EXPECT_TRUE(r.memory.fits);
  EXPECT_THAT(r.warnings, ElementsAre(HasSubstr("close to the limit")));
  EXPECT_FALSE(run_simulation(schedule, CostModel(cluster), facts(), {.allocator = std::nullopt}).memory.fits);
}

TEST(Simulation, TrafficCarriesItsModelAndTheTextbook) {
  const SimulationResult r = run_simulation(plain_schedule(3), CostModel(plain_cluster()), facts());
  EXPECT_EQ(r.traffic.total, Bytes{700'000'000});
  EXPECT_EQ(r.traffic.textbook, Bytes{123});
  EXPECT_EQ(r.traffic.textbook_differs_because, "padding");
  ASSERT_EQ(r.traffic.by_group.size(), 1u);
  EXPECT_FALSE(r.traffic.by_group[0].cost_model.empty());
  EXPECT_EQ(r.world_size, 8);
  EXPECT_EQ(r.schedule->strategy, "hand-made");
}

TEST(Simulation, APreparedStepComesToTheSameOnEveryMachine) {
  Cluster slow = plain_cluster();
  slow.profile.node.ring_bandwidth = ByteRate{10e9};
  const PreparedStep prepared = prepare_step(plain_schedule(3), facts().parameters);
  for (const Cluster& cluster : {plain_cluster(), slow}) {
    const CostModel model(cluster);
    const SimulationResult shared = run_simulation(prepared, model, facts(), {.timeline = true});
    const SimulationResult alone = run_simulation(plain_schedule(3), model, facts(), {.timeline = true});
    EXPECT_EQ(shared.step.time, alone.step.time);
    EXPECT_EQ(shared.step.hardware_flops, alone.step.hardware_flops);
    EXPECT_EQ(shared.traffic.total, alone.traffic.total);
    EXPECT_EQ(shared.memory.device_peak, alone.memory.device_peak);
    EXPECT_EQ(shared.memory.timeline.times, alone.memory.timeline.times);
    EXPECT_EQ(shared.warnings, alone.warnings);
  }
}

TEST(Simulation, KeepsTheTimelineWhenAsked) {
  const CostModel model(plain_cluster());
  const SimulationResult kept = run_simulation(plain_schedule(3), model, facts(), {.timeline = true});
  EXPECT_EQ(kept.timeline.slices.size(), 4u);
  EXPECT_EQ(kept.memory.timeline.times.size(), 3u);  // one is alive before the step
  const SimulationResult bare = run_simulation(plain_schedule(3), model, facts());
  EXPECT_THAT(bare.timeline.slices, IsEmpty());
  EXPECT_THAT(bare.memory.timeline.times, IsEmpty());
  EXPECT_EQ(bare.timeline.end, kept.timeline.end);
}

}  // namespace
}  // namespace shardsim
