// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/critical_path.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

#include "hand_made.hpp"

namespace shardsim {
namespace {

TEST(CriticalPath, GoesThroughWhatHoldsTheStepUp) {
  HandMade h;
  const StreamId side = h.builder.stream("side");
  const OpId a = h.compute("a", 10);
  h.copy(side, "hidden", 12);
  h.builder.wait(side, a);
  const OpId b = h.copy(side, "b", 20);
  h.compute("hidden", 5);
  const RankProgram program = h.program();
  const CriticalPath path = critical_path({&program, 1});
  EXPECT_EQ(path.end, ticks(32));  // the copy before `b` on its stream ends after `a`
  EXPECT_THAT(path.ops, testing::ElementsAre(OpId{1}, OpId{2}, b));
  EXPECT_EQ(path.done[0][static_cast<std::size_t>(a.index)], ticks(10));
}

TEST(CriticalPath, FindsADeadlock) {
  HandMade a, b;
  for (HandMade* h : {&a, &b}) {
    const CommunicatorId x = h->builder.communicator("x", "x", 8), y = h->builder.communicator("y", "y", 8);
    h->collective(ScheduleBuilder::compute_stream(), h == &b ? y : x, "first", 1);
    h->collective(ScheduleBuilder::compute_stream(), h == &b ? x : y, "second", 1);
  }
  const std::array programs{a.program(), b.program()};
  EXPECT_THROW((void)critical_path(programs), std::logic_error);
}

// Random programs --------------------------------------------------------------------------------------------------------------------

/// One random step of a program: which kind of op, on which stream, waiting for which earlier op, how long on device and host.
struct Move {
  int kind, stream, target, device, host;
};

std::ostream& operator<<(std::ostream& out, const Move& m) {
  return out << "{" << m.kind << " " << m.stream << " " << m.target << " " << m.device << " " << m.host << "}";
}

rc::Gen<std::vector<Move>> moves() {
  return rc::gen::container<std::vector<Move>>(
      rc::gen::build<Move>(rc::gen::set(&Move::kind, rc::gen::inRange(0, 9)), rc::gen::set(&Move::stream, rc::gen::inRange(0, 4)),
                           rc::gen::set(&Move::target, rc::gen::inRange(0, 1000)), rc::gen::set(&Move::device, rc::gen::inRange(0, 30)),
                           rc::gen::set(&Move::host, rc::gen::inRange(0, 6))));
}

/// An earlier op that runs on a stream; none if there is none.
OpId earlier(const Schedule& schedule, int choice) {
  std::vector<OpId> candidates;
  for (std::size_t i = 0; i < schedule.ops.size(); ++i)
    if (schedule.ops[i].stream.valid()) candidates.push_back(OpId{static_cast<std::int32_t>(i)});
  return candidates.empty() ? OpId{} : candidates[static_cast<std::size_t>(choice) % candidates.size()];
}

/// `scale` makes the same program on a slower rank; collectives take `share` of the network, every third copy as much of the host link.
void write(HandMade& h, const std::vector<Move>& program, int scale, float share = 0) {
  const std::array streams{ScheduleBuilder::compute_stream(), h.builder.stream("a"), h.builder.stream("b"), h.builder.stream("c")};
  const std::array communicators{h.builder.communicator("x", "x", 8), h.builder.communicator("y", "y", 8)};
  for (const Move& m : program) {
    const StreamId stream = streams[static_cast<std::size_t>(m.stream)];
    switch (m.kind) {
      case 0:
        h.builder.host_wait({"limit", {}}, earlier(h.builder.schedule(), m.target));
        break;
      case 1:
        h.builder.synchronize({"synchronize", {}});
        break;
      case 2:
      case 3:
        h.builder.wait(stream, earlier(h.builder.schedule(), m.target));
        break;
      case 4:
      case 5:
        h.collective(stream, communicators[static_cast<std::size_t>(m.target % 2)], "collective", m.device, m.host, share);
        break;
      case 6:
        h.update(stream, "update", m.device, m.host, m.target % 2 == 0);
        break;
      case 7:
        h.compute("compute", m.device * scale, m.host);
        break;
      default:
        h.copy(stream, "copy", m.device * scale, m.host * scale, m.target % 3 == 0 ? share : 0);
        break;
    }
  }
}

void expect_same_times(const std::vector<RankProgram>& programs) {
  const std::vector<Timeline> timelines = simulate(programs, {});
  const CriticalPath oracle = critical_path(programs);
  SimTime end;
  for (std::size_t p = 0; p < programs.size(); ++p) {
    end = std::max(end, timelines[p].end);
    for (const Slice& slice : timelines[p].slices) RC_ASSERT(slice.end == oracle.done[p][static_cast<std::size_t>(slice.op.index)]);
    for (const HostSlice& slice : timelines[p].host) {
      const Op& op = programs[p].schedule().at(slice.op);
      if (!op.stream.valid()) RC_ASSERT(slice.end == oracle.done[p][static_cast<std::size_t>(slice.op.index)]);
    }
  }
  RC_ASSERT(end == oracle.end);
}

RC_GTEST_PROP(CriticalPath, AgreesWithTheEngineWhereNothingContends, ()) {
  HandMade h;
  write(h, *moves(), 1);
  expect_same_times({h.program()});
}

RC_GTEST_PROP(CriticalPath, AgreesWithTheEngineOnSeveralPrograms, ()) {
  const std::vector<Move> program = *moves();
  HandMade fast, slow, slowest;
  write(fast, program, 1);
  write(slow, program, 2);
  write(slowest, program, 5);
  expect_same_times({fast.program(), slow.program(), slowest.program()});
}

// Properties of the engine with contention ---------------------------------------------------------------------------------------------

RC_GTEST_PROP(Engine, StreamsAndCommunicatorsRunOneOpAtATime, ()) {
  HandMade h;
  write(h, *moves(), 1);
  const Timeline t = h.replay({.overlap_slowdown = 0.3});
  std::map<std::int32_t, SimTime> stream_free, communicator_free;
  for (const Slice& slice : t.slices) {
    RC_ASSERT(slice.begin <= slice.end);
    RC_ASSERT(stream_free[slice.stream.index] <= slice.begin);
    stream_free[slice.stream.index] = slice.end;
    const auto* collective = std::get_if<Communicate>(&h.builder.schedule().at(slice.op).action);
    if (collective == nullptr) continue;
    RC_ASSERT(communicator_free[collective->communicator.index] <= slice.begin);
    communicator_free[collective->communicator.index] = slice.end;
  }
}

RC_GTEST_PROP(Engine, SlowdownNeverShortensTheStep, ()) {
  HandMade h;
  write(h, *moves(), 1);
  RC_ASSERT(h.replay().end <= h.replay({.overlap_slowdown = 0.5}).end);
}

/// Of two alike programs each is interrupted by the events of the other, and has resources of its own.
RC_GTEST_PROP(Engine, RunAloneAsBesideTheirLikeAtChangingSpeeds, ()) {
  HandMade h;
  write(h, *moves(), 1, 0.7F);
  const std::vector<RankProgram> two{h.program(), h.program()};
  const ReplayOptions machine{.overlap_slowdown = 0.5};
  const Timeline alone = simulate({two.data(), 1}, machine).front();
  const Timeline beside = simulate(two, machine).front();
  RC_ASSERT(alone.end == beside.end);
  RC_ASSERT(alone.slices.size() == beside.slices.size());
  for (std::size_t i = 0; i < alone.slices.size(); ++i) {
    RC_ASSERT(alone.slices[i].op == beside.slices[i].op);
    RC_ASSERT(alone.slices[i].begin == beside.slices[i].begin);
    RC_ASSERT(alone.slices[i].end == beside.slices[i].end);
  }
}

}  // namespace
}  // namespace shardsim
