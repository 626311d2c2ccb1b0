// SPDX-License-Identifier: Apache-2.0
// Everything of `execute --backend cuda` but the GPUs: schedules on devices that are loops on the host, over a library that is shared
// memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/execute/backends/device_backend.hpp"
#include "calibrate/execute/execution.hpp"
#include "calibrate/execute/training/host_math.hpp"
#include "calibrate/gpu/check.hpp"
#include "calibrate/ranks/ranks.hpp"
#include "execute_job.hpp"
#include "loop_device.hpp"
#include "shared_group.hpp"

namespace shardsim::execute {
namespace {

using testing::HasSubstr;

/// Two GPUs, so that four ranks share them. `arena` outlives the platform.
DeviceMaker loop_devices(test::SharedArena& arena) {
  static std::int64_t sent = 0;  // each rank's process has its own
  DeviceMaker maker;
  maker.find = [] { return std::vector<GpuFacts>{{"a", "loop", 0}, {"b", "loop", 0}}; };
  maker.open = [](int) { return std::make_unique<test::LoopDevice>(); };
  maker.make_id = [&arena] { return arena.make_id(); };
  maker.join = [&arena](Device&, const std::string& id, int rank, int ranks) {
    return std::make_unique<test::SharedGroup>(arena.at(id), rank, ranks, sent);
  };
  maker.counter = [](Route, const GpuFacts&) { return ByteCounter{[] { return Bytes{sent}; }, "the test's library"}; };
  return maker;
}

struct DeviceCase {
  std::string strategy;
  Semantics semantics;
  std::int64_t ranks;
  bool mixed;
  std::string transport;
};

std::vector<DeviceCase> device_cases() {
  std::vector<DeviceCase> all;
  for (const char* strategy : {"naive_dp", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"})
    for (Semantics semantics : {Semantics::framework, Semantics::textbook})
      for (std::int64_t ranks : {2, 3})
        for (const char* transport : {"network", "host"}) all.push_back({strategy, semantics, ranks, ranks == 2, transport});
  for (const char* strategy : {"zero_redundancy", "mics", "megatron", "olmo_ddp"})
    all.push_back({strategy, Semantics::framework, 2, true, "network"});
  return all;
}

std::string device_case_name(const testing::TestParamInfo<DeviceCase>& info) {
  const DeviceCase& c = info.param;
  return c.strategy + (c.semantics == Semantics::textbook ? "Textbook" : "Framework") + "N" + std::to_string(c.ranks) +
         (c.mixed ? "Mixed" : "Fp32") + (c.transport == "host" ? "ThroughTheHost" : "OverTheLibrary");
}

test::OwnedJob job_of(const DeviceCase& c) {
  test::OwnedJob job = test::small_job(AttentionKind::flash, c.strategy, c.semantics);
  if (c.mixed) test::use_mixed_precision(job);
  job.world_size = job.gpus_per_node = c.ranks;
  return job;
}

class DevicePlatformTest : public testing::TestWithParam<DeviceCase> {};

TEST_P(DevicePlatformTest, MeasuredIsPredicted) {
  test::SharedArena arena;
  DevicePlatform platform(loop_devices(arena), GetParam().transport);
  const ExecutionResult result = execute_on(platform, job_of(GetParam()), {.steps = 2});
  EXPECT_EQ(result.sent.measured, result.sent.predicted);
  EXPECT_EQ(result.control.measured, result.control.predicted);
  EXPECT_EQ(result.peak.measured, result.peak.predicted);
  EXPECT_LE(result.loss.largest_difference, result.loss.tolerance);
  EXPECT_LE(result.gradient.largest_difference, result.gradient.tolerance);
  EXPECT_TRUE(result.same_parameters);
  ASSERT_EQ(result.pools.size(), static_cast<std::size_t>(GetParam().ranks));
  for (const PoolCheck& pool : result.pools) {
    EXPECT_TRUE(pool.within());
    EXPECT_EQ(Bytes{static_cast<std::int64_t>(pool.use.used_high)}, pool.most);
    EXPECT_LT(pool.least, pool.most);
  }
  EXPECT_EQ(result.counted_by, GetParam().transport == "host" ? "kernel: TCP_INFO tcpi_bytes_acked" : "the test's library");
  EXPECT_TRUE(result.agree());
}

INSTANTIATE_TEST_SUITE_P(Strategies, DevicePlatformTest, testing::ValuesIn(device_cases()), device_case_name);

TEST(DevicePlatform, GroupsOfReplicasMeetByThemselves) {
  test::SharedArena arena;
  DevicePlatform platform(loop_devices(arena), "network");
  test::OwnedJob job = job_of({"fsdp2", Semantics::framework, 4, true, "network"});
  job.strategy.options.set("replicate", std::int64_t{2});
  EXPECT_TRUE(execute_on(platform, job, {.steps = 2}).agree());
}

TEST(DevicePlatform, OneRankNeedsNoLibrary) {
  test::SharedArena arena;
  DevicePlatform platform(loop_devices(arena), "network");
  const ExecutionResult result = execute_on(platform, job_of({"fsdp1", Semantics::framework, 1, true, "network"}), {.steps = 1});
  EXPECT_TRUE(result.agree());
  EXPECT_EQ(result.sent.measured, std::vector<Bytes>{Bytes{}});
}

TEST(DevicePlatform, PlainAttentionOnTheDevice) {
  test::SharedArena arena;
  DevicePlatform platform(loop_devices(arena), "host");
  test::OwnedJob job = test::small_job(AttentionKind::plain, "ddp", Semantics::framework);
  job.world_size = job.gpus_per_node = 2;
  EXPECT_TRUE(execute_on(platform, job, {.steps = 2}).agree());
}

// Bytes still count right, values do not, whatever carries them.
TEST(DevicePlatform, AWrongByteOnTheWireIsFound) {
  for (const char* transport : {"host", "network"})
    for (const char* strategy : {"ddp", "zero3"}) {
      test::SharedArena arena;
      DevicePlatform platform(loop_devices(arena), transport);
      ExecutionOptions options{.steps = 2};
      options.network.fault = WireFault{1, 5'001};
      const ExecutionResult result = execute_on(platform, job_of({strategy, Semantics::framework, 2, true, transport}), options);
      EXPECT_TRUE(result.sent.equal()) << transport << ' ' << strategy;
      EXPECT_FALSE(result.agree()) << transport << ' ' << strategy;
    }
}

TEST(DevicePlatform, AFailingDeviceNamesItsRank) {
  test::SharedArena arena;
  DeviceMaker maker = loop_devices(arena);
  maker.open = [](int gpu) -> std::unique_ptr<Device> {
    if (gpu == 1) gpu::throw_failure("cudaSetDevice(device)", "calibrate/gpu/device.cu", 12, "invalid device ordinal");
    return std::make_unique<test::LoopDevice>();
  };
  DevicePlatform platform(std::move(maker), "host");
  try {
    (void)execute_on(platform, job_of({"ddp", Semantics::framework, 2, true, "host"}), {.steps = 1});
    FAIL() << "a device failed";
  } catch (const EnvironmentError& error) {
    EXPECT_STREQ(error.what(), "rank 1: cudaSetDevice(device) failed (device.cu:12): invalid device ordinal");
  }
}

TEST(DevicePlatform, AMachineWithoutDevicesIsRefused) {
  test::SharedArena arena;
  DeviceMaker maker = loop_devices(arena);
  maker.find = [] { return std::vector<GpuFacts>{}; };
  EXPECT_THROW(DevicePlatform(std::move(maker), "auto"), EnvironmentError);
}

// Collectives one by one, uneven parts too, against the ring's ------------------------------------------------------------------------

struct Call {
  Collective kind;
  Reduction reduction;
  std::size_t elements;
  DType dtype;
  bool own_shard;
};

std::vector<std::byte> payload_of(int rank, const Call& call) {
  std::vector<float> values(call.elements);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((static_cast<std::size_t>(rank) * 5 + i * 3) % 16);  // exact in bf16, sums too
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_of(call.dtype)));
  encode(values, call.dtype, bytes);
  return bytes;
}

/// Payload and shard after the call.
std::string run_call(Collectives& collectives, int rank, int ranks, const Call& call) {
  std::vector<std::byte> full = payload_of(rank, call);
  const auto segments = ring_segments(static_cast<std::int64_t>(call.elements), ranks);
  std::vector<std::byte> shard(
      call.own_shard ? static_cast<std::size_t>(segments[static_cast<std::size_t>(rank)] * size_of(call.dtype)) : 0, std::byte{1});
  CollectiveCall made{.kind = call.kind, .dtype = call.dtype, .reduction = call.reduction, .root = ranks - 1};
  made.full = full;
  made.shard = shard;
  collectives.run(members_of(Group{"world", ranks, 1}, rank), made);
  const bool undefined = call.kind == Collective::reduce && rank != ranks - 1;
  std::string result;
  if (!undefined)
    for (std::byte b : full) result += static_cast<char>(b);
  for (std::byte b : shard) result += static_cast<char>(b);
  return result;
}

TEST(LibraryCollectives, ComeToWhatTheRingComesTo) {
  std::vector<Call> calls;
  for (std::size_t elements : {1u, 2u, 7u, 12u})
    for (DType dtype : {DType::bf16, DType::fp32}) {
      for (Reduction reduction : {Reduction::sum, Reduction::average, Reduction::max}) {
        calls.push_back({Collective::all_reduce, reduction, elements, dtype, false});
        calls.push_back({Collective::reduce, reduction, elements, dtype, false});
        for (bool own_shard : {false, true}) calls.push_back({Collective::reduce_scatter, reduction, elements, dtype, own_shard});
      }
      for (bool own_shard : {false, true}) calls.push_back({Collective::all_gather, Reduction::sum, elements, dtype, own_shard});
      calls.push_back({Collective::broadcast, Reduction::sum, elements, dtype, false});
      if (elements == 12) calls.push_back({Collective::all_to_all, Reduction::sum, elements, dtype, false});
    }
  test::SharedArena arena;
  const int ranks = 3;
  const auto results = run_ranks(ranks, [&](int rank, Line& line) {
    const auto meet = [&line](const std::vector<int>& ports) { return line.meet(ports); };
    Mesh mesh(rank, ranks, meet), setup(rank, ranks, meet);
    RingCollectives ring(mesh);
    test::LoopDevice device;
    std::int64_t sent = 0;
    const auto join = [&](Device&, const std::string& id, int r, int n) {
      return std::make_unique<test::SharedGroup>(arena.at(id), r, n, sent);
    };
    LibraryCollectives library(device, {setup, [&] { return arena.make_id(); }, join}, {[&] { return Bytes{sent}; }, "shared memory"});
    std::string wrong;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Bytes before = library.sent();
      if (run_call(library, rank, ranks, calls[i]) != run_call(ring, rank, ranks, calls[i]))
        wrong += "call " + std::to_string(i) + " differs; ";
      const Bytes expected =
          nccl_sent(calls[i].kind, Elements{static_cast<std::int64_t>(calls[i].elements)}, calls[i].dtype, ranks, rank, ranks - 1);
      if (library.sent() - before != expected)
        wrong += "call " + std::to_string(i) + " sent " + std::to_string((library.sent() - before).value()) + "; ";
    }
    return wrong;
  });
  EXPECT_EQ(results, (std::vector<std::string>{"", "", ""}));
}

}  // namespace
}  // namespace shardsim::execute
