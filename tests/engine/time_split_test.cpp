// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/time_split.hpp"

#include <gtest/gtest.h>

#include "hand_made.hpp"

namespace shardsim {
namespace {

TimeSplit split(HandMade& h) { return split_time(h.program(), h.replay()); }

SimTime sum(const TimeSplit& s) { return s.compute + s.optimizer + s.exposed + s.link + s.idle; }

// host:    |issue 4|                                  |busy 10 |
// compute:         4 forward 14         20 update 26           36 late 37
// gather:      4 ------ gather ------ 20
TEST(TimeSplit, EveryInstantCountsOnce) {
  HandMade h;
  const StreamId gather = h.builder.stream("gather");
  const CommunicatorId shard = h.builder.communicator("shard", "shard", 8);
  h.compute("forward", 10, 4);
  const OpId gathered = h.collective(gather, shard, "gather", 16);
  h.builder.wait(ScheduleBuilder::compute_stream(), gathered);
  const OpId update = h.update(ScheduleBuilder::compute_stream(), "update", 6, 0, false);
  h.builder.host_wait({"norm", {}}, update);
  h.compute("late", 1, 10);
  const TimeSplit s = split(h);
  EXPECT_EQ(s.compute, ticks(11));
  EXPECT_EQ(s.exposed, ticks(6));
  EXPECT_EQ(s.optimizer, ticks(6));
  EXPECT_EQ(s.idle, ticks(4 + 10));
  EXPECT_EQ(s.link, ticks(0));
  EXPECT_EQ(sum(s), ticks(37));
  EXPECT_EQ(s.communication, ticks(16));
  EXPECT_EQ(s.communication_busy, ticks(16));
  EXPECT_EQ(s.kernels_busy, ticks(17));
  EXPECT_EQ(s.host_busy, ticks(14));
  EXPECT_EQ(s.longest_collective, gathered);
}

TEST(TimeSplit, ConcurrentCollectivesAddUpButAreExposedOnce) {
  HandMade h;
  h.collective(h.builder.stream("a"), h.builder.communicator("a", "a", 8), "a", 10);
  h.collective(h.builder.stream("b"), h.builder.communicator("b", "b", 8), "b", 6);
  const TimeSplit s = split(h);
  EXPECT_EQ(s.communication, ticks(16));
  EXPECT_EQ(s.communication_busy, ticks(10));
  EXPECT_EQ(s.exposed, ticks(10));
}

TEST(TimeSplit, OptimizerOnTheHostIsOptimizerTime) {
  HandMade h;
  const OpId up = h.builder.copy({"upload", {}}, h.builder.stream("up"), {.path = CopyPath::to_device});
  h.builder.host_wait({"wait", {}}, up);
  h.update(ScheduleBuilder::compute_stream(), "cpu_adam", 20, 1, true);
  h.compute("after", 5);
  const TimeSplit s = split(h);
  EXPECT_EQ(s.optimizer, ticks(21));
  EXPECT_EQ(s.host_updates, ticks(21));
  EXPECT_EQ(s.compute, ticks(5));
  EXPECT_EQ(sum(s), ticks(26));
}

TEST(TimeSplit, CopiesOverTheHostLinkAreNoKernels) {
  HandMade h;
  const StreamId up = h.builder.stream("up");
  h.compute("forward", 3);
  h.copy(up, "upload", 7);
  std::get<Copy>(h.builder.schedule().ops.back().action).path = CopyPath::to_device;
  const TimeSplit s = split(h);
  EXPECT_EQ(s.compute, ticks(3));
  EXPECT_EQ(s.link, ticks(4));
  EXPECT_EQ(s.link_busy, ticks(7));
  EXPECT_FALSE(s.longest_collective.valid());
}

}  // namespace
}  // namespace shardsim
