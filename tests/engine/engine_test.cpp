// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

#include "hand_made.hpp"

namespace shardsim {
namespace {

constexpr StreamId only_stream = ScheduleBuilder::compute_stream();

TEST(Engine, StreamsAreFirstInFirstOutAndRunBesideEachOther) {
  HandMade h;
  const StreamId side = h.builder.stream("side");
  const OpId a = h.compute("a", 10), b = h.compute("b", 5);
  const OpId c = h.copy(side, "c", 7), d = h.copy(side, "d", 3);
  const Timeline t = h.replay();
  EXPECT_EQ(ran(t, a), (Ran{0, 10}));
  EXPECT_EQ(ran(t, b), (Ran{10, 15}));
  EXPECT_EQ(ran(t, c), (Ran{0, 7}));
  EXPECT_EQ(ran(t, d), (Ran{7, 10}));
  EXPECT_EQ(t.end, ticks(15));
}

TEST(Engine, SlicesComeByBeginThenOp) {
  HandMade h;
  const StreamId side = h.builder.stream("side");
  const OpId a = h.copy(side, "a", 1), b = h.compute("b", 1), c = h.compute("c", 0), d = h.compute("d", 2);
  const Timeline t = h.replay();
  std::vector<OpId> order;
  for (const Slice& slice : t.slices) order.push_back(slice.op);
  EXPECT_THAT(order, testing::ElementsAre(a, b, c, d));
}

TEST(Engine, HostIssuesInProgramOrder) {
  HandMade h;
  const OpId a = h.compute("a", 10, 4), b = h.compute("b", 1, 4), c = h.compute("c", 1, 12);
  const Timeline t = h.replay();
  EXPECT_EQ(ran(t, a), (Ran{4, 14}));
  EXPECT_EQ(ran(t, b), (Ran{14, 15}));
  EXPECT_EQ(ran(t, c), (Ran{20, 21}));  // issued when the host is through with it, the stream idle since 15
  ASSERT_EQ(t.host.size(), 3u);
  EXPECT_EQ(t.host[2].begin, ticks(8));
  EXPECT_EQ(t.host[2].end, ticks(20));
}

TEST(Engine, WaitHoldsLaterOpsOfItsStreamOnly) {
  HandMade h;
  const StreamId side = h.builder.stream("side");
  const OpId a = h.compute("a", 10);
  const OpId before = h.copy(side, "before", 2);
  h.builder.wait(side, a);
  const OpId after = h.copy(side, "after", 2);
  const OpId b = h.compute("b", 1);
  const Timeline t = h.replay();
  EXPECT_EQ(ran(t, before), (Ran{0, 2}));
  EXPECT_EQ(ran(t, after), (Ran{10, 12}));
  EXPECT_EQ(ran(t, b), (Ran{10, 11}));
}

TEST(Engine, WaitingForAStreamIncludesWhatThatStreamWaitsFor) {
  HandMade h;
  const StreamId side = h.builder.stream("side"), third = h.builder.stream("third");
  const OpId a = h.compute("a", 10);
  h.builder.wait(side, a);  // the last thing issued to `side`
  h.builder.wait_stream(third, side);
  const OpId c = h.copy(third, "c", 1);
  EXPECT_EQ(ran(h.replay(), c), (Ran{10, 11}));
}

TEST(Engine, HostWaitStopsTheHostAndNotTheStreams) {
  HandMade h;
  const StreamId side = h.builder.stream("side");
  const OpId a = h.compute("a", 10), b = h.compute("b", 10);
  h.builder.host_wait({"limit", {}}, a);
  const OpId c = h.copy(side, "c", 3);
  const Timeline t = h.replay();
  EXPECT_EQ(ran(t, b), (Ran{10, 20}));
  EXPECT_EQ(ran(t, c), (Ran{10, 13}));  // `side` was free at 0, the host was not
  ASSERT_EQ(t.host.size(), 1u);         // the others cost the host nothing
  EXPECT_EQ(t.host[0].begin, ticks(0));
  EXPECT_EQ(t.host[0].end, ticks(10));
}

TEST(Engine, SynchronizeWaitsForEverythingIssued) {
  HandMade h;
  const StreamId side = h.builder.stream("side");
  h.compute("a", 10);
  h.copy(side, "b", 25);
  h.builder.synchronize({"synchronize", {}});
  const OpId c = h.compute("c", 1);
  EXPECT_EQ(ran(h.replay(), c), (Ran{25, 26}));
}

TEST(Engine, UpdateOnTheHostKeepsItBusy) {
  HandMade h;
  h.compute("a", 4);
  const OpId cpu_adam = h.update(only_stream, "cpu_adam", 30, 2, true);
  const StreamId side = h.builder.stream("side");
  h.builder.wait(side, cpu_adam);
  const OpId upload = h.copy(side, "upload", 5);
  const Timeline t = h.replay();
  EXPECT_EQ(ran(t, cpu_adam), Ran{});
  EXPECT_EQ(t.host.back().end, ticks(32));
  EXPECT_EQ(ran(t, upload), (Ran{32, 37}));
}

TEST(Engine, CommunicatorIsFirstInFirstOutAcrossStreams) {
  HandMade h;
  const StreamId gather = h.builder.stream("gather"), reduce = h.builder.stream("reduce");
  const CommunicatorId shard = h.builder.communicator("shard", "shard", 8);
  const OpId a = h.compute("a", 10);
  h.builder.wait(reduce, a);
  const OpId first = h.collective(reduce, shard, "first", 5);    // issued first, may not begin before 10
  const OpId second = h.collective(gather, shard, "second", 4);  // its stream is free at 0
  const OpId third = h.collective(reduce, shard, "third", 1);
  const Timeline t = h.replay();
  EXPECT_EQ(ran(t, first), (Ran{10, 15}));
  EXPECT_EQ(ran(t, second), (Ran{15, 19}));
  EXPECT_EQ(ran(t, third), (Ran{19, 20}));
}

TEST(Engine, CommunicatorsAreIndependent) {
  HandMade h;
  const StreamId gather = h.builder.stream("gather"), reduce = h.builder.stream("reduce");
  const OpId a = h.collective(gather, h.builder.communicator("gather", "shard", 8), "a", 5);
  const OpId b = h.collective(reduce, h.builder.communicator("reduce", "shard", 8), "b", 4);
  const Timeline t = h.replay();
  EXPECT_EQ(ran(t, a), (Ran{0, 5}));
  EXPECT_EQ(ran(t, b), (Ran{0, 4}));
}

TEST(Engine, EqualTransfersShareALink) {
  HandMade h;
  const StreamId gather = h.builder.stream("gather"), reduce = h.builder.stream("reduce");
  const OpId a = h.collective(gather, h.builder.communicator("gather", "shard", 8), "a", 10, 0, 1);
  const OpId b = h.collective(reduce, h.builder.communicator("reduce", "shard", 8), "b", 6, 0, 1);
  const Timeline t = h.replay();
  EXPECT_EQ(ran(t, b), (Ran{0, 12}));  // half speed
  EXPECT_EQ(ran(t, a), (Ran{0, 16}));  // half speed until 12 (6 done), then alone
}

TEST(Engine, TransfersThatFitTogetherDoNotSlowEachOther) {
  HandMade h;
  const StreamId up = h.builder.stream("up"), down = h.builder.stream("down");
  const OpId a = h.copy(up, "a", 10, 0, 0.5F), b = h.copy(down, "b", 6, 0, 0.5F);
  const Timeline t = h.replay();
  EXPECT_EQ(ran(t, a), (Ran{0, 10}));
  EXPECT_EQ(ran(t, b), (Ran{0, 6}));
}

TEST(Engine, ComputeIsSlowedWhileACollectiveRuns) {
  HandMade h;
  const StreamId gather = h.builder.stream("gather");
  const CommunicatorId shard = h.builder.communicator("shard", "shard", 8);
  const OpId a = h.compute("a", 20);
  const OpId ag = h.collective(gather, shard, "ag", 5);
  const OpId b = h.copy(gather, "b", 5);
  const Timeline t = h.replay({.overlap_slowdown = 0.25});
  EXPECT_EQ(ran(t, ag), (Ran{0, 5}));
  EXPECT_EQ(ran(t, a), (Ran{0, 21}));  // 5 ticks at 1/1.25 do 4, the other 16 run at full speed
  EXPECT_EQ(ran(t, b), (Ran{5, 10}));
}

TEST(Engine, ProgramsMeetAtCollectives) {
  HandMade fast, slow;
  std::array<OpId, 2> compute{}, gathered{}, after{};
  for (int i = 0; HandMade * h : {&fast, &slow}) {
    const StreamId gather = h->builder.stream("gather");
    const CommunicatorId shard = h->builder.communicator("shard", "shard", 8);
    compute[i] = h->compute("compute", i == 0 ? 10 : 14);
    h->builder.wait(gather, compute[i]);
    gathered[i] = h->collective(gather, shard, "gather", i == 0 ? 5 : 6);
    h->builder.wait(only_stream, gathered[i]);
    after[i] = h->compute("after", 1);
    ++i;
  }
  const std::array programs{fast.program(), slow.program()};
  const std::vector<Timeline> t = simulate(programs, {});
  EXPECT_EQ(ran(t[0], compute[0]), (Ran{0, 10}));
  EXPECT_EQ(ran(t[0], gathered[0]), (Ran{14, 20}));  // begins with the straggler and takes as long as the slower
  EXPECT_EQ(ran(t[1], gathered[1]), (Ran{14, 20}));
  EXPECT_EQ(ran(t[0], after[0]), (Ran{20, 21}));
  EXPECT_EQ(ran(t[1], after[1]), (Ran{20, 21}));
}

TEST(Engine, ProgramsDoNotShareTheirOwnLinks) {
  HandMade a, b;
  const OpId up = a.copy(a.builder.stream("up"), "up", 10, 0, 1);
  b.copy(b.builder.stream("up"), "up", 10, 0, 1);
  const std::array programs{a.program(), b.program()};
  for (const Timeline& t : simulate(programs, {})) EXPECT_EQ(ran(t, up), (Ran{0, 10}));
}

TEST(Engine, ReportsDeadlock) {
  HandMade a, b;
  for (HandMade* h : {&a, &b}) {
    const CommunicatorId x = h->builder.communicator("x", "x", 8), y = h->builder.communicator("y", "y", 8);
    const bool turned = h == &b;
    h->collective(only_stream, turned ? y : x, turned ? "on_y" : "on_x", 1);
    h->collective(only_stream, turned ? x : y, turned ? "on_x" : "on_y", 1);
  }
  const std::array programs{a.program(), b.program()};
  try {
    (void)simulate(programs, {});
    FAIL() << "no deadlock found";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(
        error.what(),
        "the programs deadlock; program 0: host done, stream default at op 0 on_x; program 1: host done, stream default at op 0 on_y");
  }
}

TEST(Engine, ReportsCollectivesThatDoNotMatch) {
  HandMade a, b;
  a.collective(only_stream, a.builder.communicator("x", "x", 8), "gather", 1);
  b.collective(only_stream, b.builder.communicator("x", "x", 8), "reduce", 1, 0, 0, Collective::reduce_scatter);
  const std::array programs{a.program(), b.program()};
  EXPECT_THROW((void)simulate(programs, {}), std::logic_error);
  HandMade idle;
  idle.builder.communicator("x", "x", 8);
  const std::array missing{a.program(), idle.program()};
  EXPECT_THROW((void)simulate(missing, {}), std::logic_error);
}

TEST(Engine, RefusesCostsThatAreNotOneAnOp) {
  HandMade h;
  h.compute("a", 1);
  EXPECT_THROW((void)priced_op_by_op(h.builder.schedule(), {}), std::logic_error);
  RankProgram program = h.program();
  program.prices.pop_back();
  EXPECT_THROW((void)simulate({&program, 1}, {}), std::logic_error);
}

}  // namespace
}  // namespace shardsim
