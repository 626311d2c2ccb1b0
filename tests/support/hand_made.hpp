// SPDX-License-Identifier: Apache-2.0
// Schedules written by hand with the duration of every op beside it, for tests of the engine. One tick is a microsecond.
#pragma once

#include <vector>

#include "sim/engine/engine.hpp"
#include "sim/schedule/schedule_builder.hpp"

namespace shardsim {

inline constexpr std::int64_t tick = 1'000'000;  // picoseconds
[[nodiscard]] constexpr SimTime ticks(std::int64_t n) { return SimTime{n * tick}; }

class HandMade {
 public:
  HandMade() {
    Schedule& schedule = builder.schedule();
    schedule.strategy = "hand-made";
    schedule.semantics = "framework";
    schedule.world_size = 64;
    schedule.micro_batches = 8;
  }

  OpId compute(const char* verb, std::int64_t duration, std::int64_t host = 0) {
    return cost(builder.compute({verb, {}}, {}, Pass::forward, {}), {.device = ticks(duration), .host = ticks(host), .compute = true});
  }

  OpId copy(StreamId stream, const char* verb, std::int64_t duration, std::int64_t host = 0, float host_link = 0) {
    const OpId op = builder.copy({verb, {}}, stream, {});
    return cost(op, {.device = ticks(duration), .host = ticks(host), .share = {0, 0, host_link}});
  }

  OpId collective(StreamId stream, CommunicatorId communicator, const char* verb, std::int64_t duration, std::int64_t host = 0,
                  float network = 0, Collective kind = Collective::all_gather) {
    const OpId op = builder.communicate({verb, {}}, stream, {.kind = kind, .communicator = communicator, .payload = Elements{64}});
    return cost(op, {.device = ticks(duration), .host = ticks(host), .share = {0, network, 0}, .collective = true});
  }

  OpId update(StreamId stream, const char* verb, std::int64_t duration, std::int64_t host, bool on_host) {
    return cost(builder.update({verb, {}}, stream, {.on_host = on_host}), {.device = ticks(duration), .host = ticks(host)});
  }

  [[nodiscard]] RankProgram program() {
    costs_.resize(builder.schedule().ops.size());
    return priced_op_by_op(builder.schedule(), costs_);
  }

  [[nodiscard]] Timeline replay(const ReplayOptions& machine = {}) {
    const RankProgram one = program();
    return simulate({&one, 1}, machine).front();
  }

  ScheduleBuilder builder;

 private:
  OpId cost(OpId op, OpCost c) {
    costs_.resize(builder.schedule().ops.size());
    costs_.back() = c;
    return op;
  }

  std::vector<OpCost> costs_;
};

/// When an op ran, in ticks; {-1, -1} if it did not.
struct Ran {
  double begin = -1, end = -1;
  auto operator<=>(const Ran&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const Ran& ran) { return out << ran.begin << "-" << ran.end; }

[[nodiscard]] inline Ran ran(const Timeline& timeline, OpId op) {
  for (const Slice& slice : timeline.slices)
    if (slice.op == op) return {static_cast<double>(slice.begin.picoseconds()) / tick, static_cast<double>(slice.end.picoseconds()) / tick};
  return {};
}

}  // namespace shardsim
