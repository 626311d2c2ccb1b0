// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule/replay_program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/schedule/schedule_builder.hpp"

namespace shardsim {
namespace {

using Kind = ReplayOp::Kind;

Work kernel() {
  Work work;
  work.memory = Bytes{1};
  return work;
}

struct Written {
  ScheduleBuilder b;
  StreamId side = b.stream("side");
  CommunicatorId world = b.communicator("world", "world", 8);
  BufferId buffer = b.allocate({.dtype = DType::fp32, .elements = Elements{256}});  // 0
  OpId gathered = gather(512);                                                      // 1
  OpId first = b.compute({"a", {}}, b.work(kernel()), Pass::forward, {});           // 2
  OpId smaller = gather(256);                                                       // 3
  OpId again = b.compute({"b", {}}, WorkId{0}, Pass::backward, {});                 // 4

  Written() {
    b.wait(ScheduleBuilder::compute_stream(), smaller);                                                                      // 5
    b.free(buffer);                                                                                                          // 6
    b.host_wait({"norm", {}}, first);                                                                                        // 7
    b.update({"step", {}}, ScheduleBuilder::compute_stream(), {.work = WorkId{0}, .on_host = true});                         // 8
    gather(512);                                                                                                             // 9
    b.copy({"offload", {}}, side, {.source = buffer, .target = buffer, .count = Elements{256}, .path = CopyPath::to_host});  // 10
  }

  OpId gather(std::int64_t elements) { return b.communicate({"gather", {}}, side, {.communicator = world, .payload = Elements{elements}}); }
};

TEST(ReplayProgram, LeavesAllocationsOutAndLinksWhatFollowsOnAStream) {
  Written w;
  const ReplayProgram program(w.b.schedule());
  ASSERT_EQ(program.ops().size(), 9u);
  EXPECT_EQ(program.find(OpId{0}), -1);
  EXPECT_EQ(program.find(OpId{6}), -1);
  std::vector<std::int32_t> ops, next, streams;
  for (const ReplayOp& op : program.ops()) {
    ops.push_back(op.op.index);
    next.push_back(op.next);
    streams.push_back(op.stream);
  }
  EXPECT_THAT(ops, testing::ElementsAre(1, 2, 3, 4, 5, 7, 8, 9, 10));
  EXPECT_THAT(streams, testing::ElementsAre(1, 0, 1, 0, 0, -1, -1, 1, 1));
  EXPECT_THAT(next, testing::ElementsAre(2, 3, 7, 4, -1, -1, -1, 8, -1));
}

TEST(ReplayProgram, KnowsTurnsTargetsAndWhatIsAtWork) {
  Written w;
  const ReplayProgram program(w.b.schedule());
  const auto at = [&](std::int32_t op) { return program.ops()[static_cast<std::size_t>(program.find(OpId{op}))]; };
  EXPECT_EQ(at(1).turn, 0);
  EXPECT_EQ(at(3).turn, 1);
  EXPECT_EQ(at(9).turn, 2);
  EXPECT_EQ(at(9).target, w.world.index);
  EXPECT_EQ(at(5).target, program.find(w.smaller));
  EXPECT_EQ(at(7).target, program.find(w.first));
  EXPECT_EQ(at(7).kind, Kind::host_wait);
  EXPECT_EQ(at(8).kind, Kind::host_update);
  EXPECT_EQ(at(8).activity, Activity::update);
  EXPECT_EQ(at(9).activity, Activity::collective);
  EXPECT_EQ(at(10).activity, Activity::link);
}

TEST(ReplayProgram, OpsThatCostTheSameShareAPrice) {
  Written w;
  const ReplayProgram program(w.b.schedule());
  std::vector<std::int32_t> prices;
  for (const ReplayOp& op : program.ops()) prices.push_back(op.price);
  EXPECT_THAT(prices, testing::ElementsAre(1, 2, 3, 2, 0, 0, 4, 1, 5));
  EXPECT_THAT(program.examples(), testing::ElementsAre(OpId{}, w.gathered, w.first, w.smaller, OpId{8}, OpId{10}));
}

TEST(ReplayProgram, OrEachHasItsOwn) {
  Written w;
  const ReplayProgram program(w.b.schedule(), ReplayProgram::Pricing::op_by_op);
  EXPECT_EQ(program.examples().size(), 1 + w.b.schedule().ops.size());
  for (const ReplayOp& op : program.ops()) EXPECT_EQ(op.price, op.op.index + 1);
}

}  // namespace
}  // namespace shardsim
