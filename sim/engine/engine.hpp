// SPDX-License-Identifier: Apache-2.0
// Replays Schedules on a machine, event by event.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "sim/costs/op_cost.hpp"
#include "sim/engine/result.hpp"
#include "sim/machine/profile.hpp"
#include "sim/schedule/replay_program.hpp"

namespace shardsim {

/// The program of a class of alike ranks. Collectives of the same communicator name meet: the k-th of each program starts when all
/// programs have reached it, and all end together.
struct RankProgram {
  std::shared_ptr<const ReplayProgram> program;
  std::vector<OpCost> prices;            ///< by class
  std::vector<std::int32_t> meetings{};  ///< by communicator: programs with equal numbers meet on it; empty: all that have its name

  [[nodiscard]] const Schedule& schedule() const { return program->schedule(); }
  [[nodiscard]] const OpCost& cost(const ReplayOp& op) const { return prices[static_cast<std::size_t>(op.price)]; }
  /// Of any op of the schedule.
  [[nodiscard]] const OpCost& cost(OpId op) const;
};

/// A program with a cost of its own for each op of the schedule, which must outlive it. Throws std::logic_error if there are more or
/// fewer costs than ops.
[[nodiscard]] RankProgram priced_op_by_op(const Schedule& schedule, std::span<const OpCost> costs);

struct ReplayOptions {
  double overlap_slowdown = 0;  ///< compute takes (1 + this) times as long while a collective runs beside it
};

/// Simulated step of each program. Throws std::logic_error if the programs deadlock or collectives do not match (our bug).
/// Same input, same output on any machine: integer picoseconds, ties broken by op number, then program.
[[nodiscard]] std::vector<Timeline> simulate(std::span<const RankProgram> programs, const ReplayOptions& machine);

}  // namespace shardsim
