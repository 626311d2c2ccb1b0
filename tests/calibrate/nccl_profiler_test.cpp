// SPDX-License-Identifier: Apache-2.0
// The profiler plugin, called as NCCL calls it.
#include "calibrate/execute/backends/nccl_profiler.hpp"

#include <gtest/gtest.h>

namespace shardsim::execute {
namespace {

/// One operation of NCCL's proxy: its event, and a step's, as src/plugin/profiler.cc has them.
void send_block(void* context, bool is_send, std::size_t bytes) {
  const nccl::ProfilerV5& plugin = ncclProfiler_v5;
  nccl::Event operation{};
  operation.type = nccl::proxy_operation;
  operation.operation.is_send = is_send ? 1 : 0;
  void *outer = nullptr, *inner = nullptr;
  ASSERT_EQ(plugin.start(context, &outer, &operation), 0);
  nccl::Event step{};
  step.type = nccl::proxy_step;
  step.parent = outer;
  ASSERT_EQ(plugin.start(context, &inner, &step), 0);
  ASSERT_NE(outer, nullptr);  // NCCL tells states of events with a handle only
  ASSERT_NE(inner, nullptr);
  nccl::StateArguments arguments{};
  arguments.block_bytes = bytes;
  // The other states of a step repeat the size, or hold that of the step before.
  for (int state : {8, nccl::handed_to_network, 10, 11, 12, 20}) ASSERT_EQ(plugin.record(inner, state, &arguments), 0);
  ASSERT_EQ(plugin.record(outer, nccl::handed_to_network, nullptr), 0);
  ASSERT_EQ(plugin.stop(inner), 0);
  ASSERT_EQ(plugin.stop(outer), 0);
}

TEST(NcclProfiler, AddsUpWhatIsSentAndNothingElse) {
  const NcclTraffic before = nccl_traffic();
  void* context = nullptr;
  int events = 0;
  ASSERT_EQ(ncclProfiler_v5.init(&context, 7, &events, "world", 2, 2, 0, nullptr), 0);
  EXPECT_EQ(events, 1 << 3 | 1 << 4);  // operations and steps of the proxy
  send_block(context, true, 1'000);
  send_block(context, false, 70'000);
  send_block(context, true, 24);
  ASSERT_EQ(ncclProfiler_v5.finalize(context), 0);
  const NcclTraffic after = nccl_traffic();
  EXPECT_EQ(after.sent - before.sent, Bytes{1'024});
  EXPECT_EQ(after.blocks - before.blocks, 2);
  EXPECT_EQ(after.communicators - before.communicators, 1);
}

// A step whose operation began before the plugin listened has no parent.
TEST(NcclProfiler, StepsWithoutAnOperationAreNotCounted) {
  const Bytes before = nccl_traffic().sent;
  nccl::Event step{};
  step.type = nccl::proxy_step;
  void* handle = nullptr;
  ASSERT_EQ(ncclProfiler_v5.start(nullptr, &handle, &step), 0);
  nccl::StateArguments arguments{};
  arguments.block_bytes = 5;
  ASSERT_EQ(ncclProfiler_v5.record(handle, nccl::handed_to_network, &arguments), 0);
  EXPECT_EQ(nccl_traffic().sent, before);
}

}  // namespace
}  // namespace shardsim::execute
