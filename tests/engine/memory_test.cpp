// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory.hpp"

#include <gtest/gtest.h>

#include "hand_made.hpp"

namespace shardsim {
namespace {

Bytes of(const ByCategory& by, Category c) { return by[static_cast<std::size_t>(c)]; }

Buffer buffer(const char* verb, Category category, std::int64_t bytes, StreamId pool = {}) {
  return {.label = {verb, {}}, .category = category, .dtype = DType::int8, .pool = pool, .elements = Elements{bytes}};
}

Buffer persistent(const char* verb, Category category, std::int64_t bytes, bool host = false) {
  Buffer b = buffer(verb, category, bytes);
  b.persistent = true;
  b.host = host;
  return b;
}

/// Parameters and states are held; activations come in forward, gradients take their place in backward, the step adds scratch.
struct OneStep {
  HandMade h;
  OpId peak;

  OneStep() {
    ScheduleBuilder& b = h.builder;
    const StreamId side = b.stream("side");
    b.buffer(persistent("weights", Category::parameters, 1000));
    b.buffer(persistent("moments", Category::optimizer_states, 4000));
    const BufferId gathered = b.allocate(buffer("gathered", Category::communication_buffers, 700, side));
    const BufferId kept = b.allocate(buffer("kept", Category::activations, 3000));
    b.free(gathered);
    b.phase(Phase::backward);
    h.compute("backward", 5, 2);
    peak = OpId{static_cast<std::int32_t>(b.schedule().ops.size())};
    const BufferId gradients = b.allocate(buffer("gradients", Category::gradients, 1000));
    b.free(kept);
    const BufferId again = b.allocate(buffer("gathered_again", Category::communication_buffers, 600, side));
    b.free(again);
    b.phase(Phase::step);
    const BufferId scratch = b.allocate(buffer("scratch", Category::temporaries, 500));
    b.free(scratch);
    b.free(gradients);
  }
};

TEST(Memory, PeakIsInHostOrder) {
  OneStep s;
  const Memory m = fold_memory(s.h.builder.schedule(), 1);
  EXPECT_EQ(m.peak, Bytes{1000 + 4000 + 3000 + 1000});
  EXPECT_EQ(m.peak_op, s.peak);
  EXPECT_EQ(m.peak_at, "gradients, backward of micro-batch 0");
  EXPECT_EQ(m.peak_phase, Phase::backward);
  EXPECT_EQ(sum(m.at_peak), m.peak);
  EXPECT_EQ(of(m.at_peak, Category::activations), Bytes{3000});
  EXPECT_EQ(of(m.at_peak, Category::communication_buffers), Bytes{0});
}

TEST(Memory, PersistentAtTheEndOfBackwardAndResidentAfterTheStep) {
  const Memory m = fold_memory(OneStep{}.h.builder.schedule(), 1);
  EXPECT_EQ(of(m.persistent, Category::parameters), Bytes{1000});
  EXPECT_EQ(of(m.persistent, Category::gradients), Bytes{1000});
  EXPECT_EQ(of(m.persistent, Category::optimizer_states), Bytes{4000});
  EXPECT_EQ(sum(m.persistent), Bytes{6000});
  EXPECT_EQ(m.resident, Bytes{5000});
}

TEST(Memory, BlocksAreRoundedUp) {
  const Memory m = fold_memory(OneStep{}.h.builder.schedule(), 512);
  EXPECT_EQ(m.peak, Bytes{1024 + 4096 + 3072 + 1024});
  EXPECT_EQ(sum(m.at_peak), m.peak);
}

TEST(Memory, ReservedIsTheSumOfThePoolsOwnPeaks) {
  HandMade h;
  ScheduleBuilder& b = h.builder;
  const StreamId side = b.stream("side");
  const std::int64_t mib = 1 << 20;
  b.buffer(persistent("weights", Category::parameters, 5 * mib));
  const BufferId gathered = b.allocate(buffer("gathered", Category::communication_buffers, 3 * mib, side));
  b.free(gathered);
  const BufferId kept = b.allocate(buffer("kept", Category::activations, 2 * mib));
  b.free(kept);
  const Memory m = fold_memory(b.schedule());
  EXPECT_EQ(m.peak, mebibytes(8));
  EXPECT_EQ(m.reserved_peak, mebibytes(8 + 4));  // 7 and 3, each rounded up to a multiple of 2
}

TEST(Memory, HostMemoryIsApart) {
  HandMade h;
  ScheduleBuilder& b = h.builder;
  b.buffer(persistent("master", Category::optimizer_states, 9000, true));
  Buffer staging = buffer("staging", Category::gradients, 1000);
  staging.host = true;
  b.free(b.allocate(staging));
  b.free(b.allocate(staging));
  b.free(b.allocate(buffer("kept", Category::activations, 10)));
  const Memory m = fold_memory(b.schedule(), 1);
  EXPECT_EQ(m.host_pinned, Bytes{10000});
  EXPECT_EQ(m.peak, Bytes{10});
  EXPECT_EQ(m.resident, Bytes{0});
}

TEST(Memory, NothingAllocatedInTheStep) {
  HandMade h;
  h.builder.buffer(persistent("weights", Category::parameters, 100));
  h.compute("forward", 1);
  const Memory m = fold_memory(h.builder.schedule(), 1);
  EXPECT_EQ(m.peak, Bytes{100});
  EXPECT_FALSE(m.peak_op.valid());
  EXPECT_EQ(sum(m.persistent), Bytes{100});
}

TEST(Memory, PointsStandWhereTheDefaultStreamGetsToThem) {
  OneStep s;
  const Timeline timeline = s.h.replay();
  const auto changes = std::make_shared<const std::vector<AllocationChange>>(allocation_changes(s.h.builder.schedule(), 1));
  Memory m = fold_memory(s.h.builder.schedule(), *changes);
  m.timeline = memory_timeline(changes, timeline);
  struct State {
    SimTime time;
    OpId op;
    Bytes allocated;
  };
  std::vector<State> states;
  visit_states(m, [&](SimTime time, OpId op, const ByCategory& allocated) { states.push_back({time, op, sum(allocated)}); });
  ASSERT_EQ(states.size(), 10u);
  EXPECT_EQ(states[0].time, ticks(2));  // the forward that the buffer is for begins
  EXPECT_EQ(states[0].allocated, Bytes{5700});
  EXPECT_EQ(states[3].op, s.peak);
  EXPECT_EQ(states[3].time, ticks(7));  // issued at 2, long before the backward before it is done
  EXPECT_EQ(states[3].allocated, m.peak);
  EXPECT_EQ(states.back().allocated, m.resident);
}

}  // namespace
}  // namespace shardsim
