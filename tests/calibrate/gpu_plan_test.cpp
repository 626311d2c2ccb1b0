// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/backends/gpu_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "calibrate/execute/backends/nvlink.hpp"
#include "calibrate/execute/execution.hpp"
#include "execute_job.hpp"

namespace shardsim::execute {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refusal(const std::vector<GpuFacts>& gpus, int ranks, const char* transport) {
  try {
    (void)plan_gpus(gpus, ranks, transport);
  } catch (const EnvironmentError& error) { return error.what(); }
  return {};
}

TEST(GpuPlan, RanksTakeTurnsOnTheGpus) {
  const GpuFacts gpu{"00000000:0A:00.0", "a GPU", 0};
  EXPECT_THAT(plan_gpus({gpu, gpu, gpu}, 2, "auto").gpu_of_rank, ElementsAre(0, 1));
  EXPECT_FALSE(plan_gpus({gpu, gpu, gpu}, 2, "auto").shares());
  const GpuPlan shared = plan_gpus({gpu, gpu}, 4, "auto");
  EXPECT_THAT(shared.gpu_of_rank, ElementsAre(0, 1, 0, 1));
  EXPECT_TRUE(shared.shares());
  EXPECT_EQ(shared.route, Route::network);
  EXPECT_EQ(plan_gpus({gpu}, 2, "host").route, Route::host);
}

TEST(GpuPlan, NvlinkNeedsAGpuWithCountersForEachRank) {
  const GpuFacts linked{"a", "a GPU", 1}, alone{"b", "a GPU", 0};
  EXPECT_EQ(plan_gpus({linked, linked}, 2, "nvlink").route, Route::nvlink);
  EXPECT_EQ(refusal({linked}, 2, "nvlink"),
            "execute --backend cuda: NVLink needs a GPU for each of 2 ranks, there are 1; use --transport network");
  EXPECT_EQ(refusal({linked, alone}, 2, "nvlink"),
            "execute --backend cuda: GPU 1 has no NVLink whose bytes can be counted; use --transport network");
  EXPECT_EQ(refusal({}, 2, "auto"), "execute --backend cuda: no CUDA GPU found on this machine");
}

// Every rank is a host of its own to NCCL on the network: only so may two share a GPU, and only so does all payload pass the plugin.
TEST(GpuPlan, EnvironmentOfTheNetwork) {
  const GpuPlan plan = plan_gpus({{"a", "a GPU", 1}}, 2, "network");
  const auto value = [&](int rank, const std::string& name) {
    for (const auto& [key, text] : nccl_environment(plan, rank))
      if (key == name) return text;
    return std::string("unset");
  };
  EXPECT_NE(value(0, "NCCL_HOSTID"), value(1, "NCCL_HOSTID"));
  EXPECT_EQ(value(0, "NCCL_PROFILER_PLUGIN"), "STATIC_PLUGIN");
  EXPECT_EQ(value(0, "NCCL_ALGO"), "Ring");
  EXPECT_EQ(value(0, "NCCL_PROTO"), "Simple");
  EXPECT_EQ(value(0, "NCCL_MAX_NCHANNELS"), "1");
  EXPECT_EQ(value(0, "NCCL_PAT_ENABLE"), "0");  // NCCL would take it for all-gather with a rank on each host
}

TEST(GpuPlan, EnvironmentOfNvlinkLeavesPeersAlone) {
  const GpuPlan plan = plan_gpus({{"a", "a GPU", 1}, {"b", "a GPU", 1}}, 2, "nvlink");
  for (const auto& [name, value] : nccl_environment(plan, 0))
    EXPECT_TRUE(name != "NCCL_HOSTID" && name != "NCCL_P2P_DISABLE") << name << '=' << value;
}

// 10 fp32 on 4 ranks: one loop, chunks of ceil(10/4) = 3 rounded up to 4 elements (16 B): segments 4, 4, 2, 0.
TEST(NcclSent, AllReduceRoundsTheLastLoopsChunksUp) {
  std::vector<std::int64_t> sent;
  for (std::int64_t r = 0; r < 4; ++r) sent.push_back(nccl_sent(Collective::all_reduce, Elements{10}, DType::fp32, 4, r).value() / 4);
  EXPECT_THAT(sent, ElementsAre(20 - 4 - 4, 20 - 4 - 2, 20 - 2 - 0, 20 - 0 - 4));
}

// 3 Mi fp32 on 2 ranks: loops of 2 x 2 MiB = 1 Mi elements, all whole: a quarter each way of 2 (n - 1)/n S.
TEST(NcclSent, AllReduceOfWholeLoops) {
  EXPECT_EQ(nccl_sent(Collective::all_reduce, Elements{3 << 20}, DType::fp32, 2, 1), Bytes{4LL * (3 << 20)});
  // 100 elements more make a last loop of chunks of 52 (50 rounded up to 16 B): rank 0 sends segments 1 and 0.
  EXPECT_EQ(nccl_sent(Collective::all_reduce, Elements{(3 << 20) + 100}, DType::fp32, 2, 0), Bytes{4LL * ((3 << 20) + 100)});
}

TEST(NcclSent, AllRanksTogetherSendWhatTheFormulaSays) {
  for (const std::int64_t n : {2, 3, 4, 8})
    for (const std::int64_t count : {1, 7, 1'000, 2'500'003}) {
      Bytes reduced, gathered;
      for (std::int64_t r = 0; r < n; ++r) {
        reduced += nccl_sent(Collective::all_reduce, Elements{count}, DType::bf16, n, r);
        gathered += nccl_sent(Collective::all_gather, Elements{count}, DType::bf16, n, r);
      }
      EXPECT_EQ(reduced, Bytes{2 * (n - 1) * count * 2}) << n << ' ' << count;
      EXPECT_EQ(gathered, Bytes{(n - 1) * count * 2}) << n << ' ' << count;
    }
  EXPECT_EQ(nccl_sent(Collective::all_reduce, Elements{10}, DType::bf16, 1, 0), Bytes{});
}

TEST(NcclSent, OnlyNvlinkHasATolerance) {
  EXPECT_EQ(sent_tolerance(Route::network, Bytes{1'000'000}, 10), Bytes{});
  EXPECT_EQ(sent_tolerance(Route::host, Bytes{1'000'000}, 10), Bytes{});
  EXPECT_EQ(sent_tolerance(Route::nvlink, Bytes{1'000'000}, 10), Bytes{20'000 + 20 * 1'024});
}

TEST(PoolHighWater, RoundsEveryBuffer) {
  Schedule schedule;
  schedule.buffers = {{.persistent = true, .dtype = DType::fp32, .elements = Elements{100}},  // 400 B: 512
                      {.dtype = DType::bf16, .elements = Elements{512}},                      // 1024 B
                      {.host = true, .dtype = DType::fp32, .elements = Elements{4'000}},      // none of the pool's
                      {.dtype = DType::bf16, .elements = Elements{1}}};                       // 2 B: 512
  const auto id = [](std::int32_t index) { return BufferId{index}; };
  for (const Action& action : {Action{Allocate{id(1)}}, Action{Allocate{id(2)}}, Action{Free{id(1)}}, Action{Allocate{id(3)}},
                               Action{Free{id(3)}}, Action{Free{id(2)}}})
    schedule.ops.push_back({.action = action});
  const auto rounding_to = [](std::int64_t step) { return [step](Bytes size) { return Bytes{(size.value() + step - 1) / step * step}; }; };
  EXPECT_EQ(pool_high_water(schedule, rounding_to(512)), Bytes{512 + 1024});
  EXPECT_EQ(pool_high_water(schedule, rounding_to(1)), Bytes{400 + 1024});
  EXPECT_EQ(pool_high_water(schedule, rounding_to(2048)), Bytes{2 * 2048});
}

// NVML as a test has it: two GPUs, one of which counts.
struct FakeField {
  unsigned field, scope;
  long long timestamp, latency;
  int type, status;
  std::uint64_t value;
};
int fake_device = 0;
int fake_init() { return 0; }
int fake_by_id(const char* id, void** device) {
  *device = &fake_device;
  return std::strcmp(id, "unknown") == 0 ? 2 : 0;
}
int fake_values(void*, int count, void* values) {
  auto* field = static_cast<FakeField*>(values);
  field->status = count == 1 && field->field == 138 && field->scope == 0xffffffffu ? 0 : 3;
  field->value = 5;
  return 0;
}

TEST(Nvlink, CountsInKibibytesOverAllLinks) {
  const NvlinkCounter counter({fake_init, fake_by_id, fake_values}, "00000000:0A:00.0");
  EXPECT_EQ(counter.sent(), Bytes{5'120});
  EXPECT_THROW((NvlinkCounter({fake_init, fake_by_id, fake_values}, "unknown")), EnvironmentError);
}

TEST(Nvlink, AGpuWithoutCountersSaysNothing) {
  const auto unsupported = [](void*, int, void* values) {
    static_cast<FakeField*>(values)->status = 3;
    return 0;
  };
  EXPECT_EQ(NvlinkCounter({fake_init, fake_by_id, unsupported}, "a").sent(), std::nullopt);
}

TEST(CudaPlatform, SaysWhatTheBuildOrTheMachineLacks) {
  try {
    (void)open_platform("cuda");
    GTEST_SKIP() << "this machine has a GPU";
  } catch (const EnvironmentError& error) {
    EXPECT_THAT(error.what(), HasSubstr("execute --backend cuda: "));
    EXPECT_THAT(error.what(), testing::AnyOf(HasSubstr("cmake --preset cuda"), HasSubstr("no CUDA GPU found")));
  }
}

}  // namespace
}  // namespace shardsim::execute
