// SPDX-License-Identifier: Apache-2.0
// A schedule as replays see it: the ops that take part in time, each a few bytes, in classes of ops that cost the same on any machine.
//
// Most ops of a schedule are allocations, which take no time, and an op says much more than a replay needs. Found once for a schedule,
// this fits into the nearest caches, and a few hundred prices stand for thousands of costs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/schedule/schedule.hpp"

namespace shardsim {

/// What an op keeps at work, in the order of precedence of TimeSplit.
enum class Activity : std::uint8_t { kernel, update, collective, link };
inline constexpr std::size_t activity_count = 4;

struct ReplayOp {
  enum class Kind : std::uint8_t {
    kernel,      ///< runs on its stream: compute, copies, updates on the device
    collective,  ///< runs on its stream, with the other ranks
    wait,        ///< holds up its stream
    host_wait,   ///< holds up the host
    synchronize,
    host_update,  ///< keeps the host busy
  };
  OpId op{};                 ///< in the schedule
  std::int32_t next = -1;    ///< the op behind it on its stream; -1 if there is none
  std::int32_t target = -1;  ///< of both waits: the op waited for; of a collective: its communicator
  std::int32_t turn = 0;     ///< of a collective: how many come before it on its communicator
  std::int32_t behind = -1;  ///< the op that must be done before the host issues this one (see launches_in_flight); -1: none
  std::int32_t price = 0;    ///< its class; ops of class 0 cost nothing
  std::int16_t stream = -1;  ///< -1: it happens on the host
  Kind kind = Kind::kernel;
  Activity activity = Activity::kernel;
};

/// The driver's queue holds so many launches: the host runs no further ahead of the device. SOURCE: CUDA's launch queue of 1,024 entries a
/// context, seen as a launch that blocks. Looked at once for every quarter of them, which is what the order of events can tell.
inline constexpr std::int64_t launches_in_flight = 1024;

class ReplayProgram {
 public:
  enum class Pricing : std::uint8_t { by_class, op_by_op };

  /// `schedule` must outlive this. With `op_by_op` each op is a class of its own, numbered as in the schedule, from 1.
  explicit ReplayProgram(const Schedule& schedule, Pricing pricing = Pricing::by_class);

  [[nodiscard]] const Schedule& schedule() const { return *schedule_; }
  [[nodiscard]] std::span<const ReplayOp> ops() const { return ops_; }  ///< in host order
  /// An op of each class, by class; none for class 0.
  [[nodiscard]] std::span<const OpId> examples() const { return examples_; }
  /// The position in ops() of an op of the schedule; -1 if it takes no part in time.
  [[nodiscard]] std::int32_t find(OpId op) const { return positions_[static_cast<std::size_t>(op.index)]; }

 private:
  void link();
  void bound_flight();

  const Schedule* schedule_;
  std::vector<ReplayOp> ops_;
  std::vector<OpId> examples_;
  std::vector<std::int32_t> positions_;  // by op of the schedule
};

}  // namespace shardsim
