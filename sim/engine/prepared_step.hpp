// SPDX-License-Identifier: Apache-2.0
// What a schedule comes to on any machine: found once, and shared by all simulations that differ in the machine alone.
#pragma once

#include <memory>
#include <optional>

#include "sim/engine/simulation.hpp"
#include "sim/memory/allocator_replay.hpp"
#include "sim/memory/memory.hpp"
#include "sim/schedule/replay_program.hpp"

namespace shardsim {

/// What the allocator's model made of a step on machines of one capacity, whatever their speeds.
struct ReservedMemory {
  AllocatorOptions options;
  Bytes workspace;
  AllocatorReplay replay;
};

struct PreparedStep {
  std::shared_ptr<const Schedule> schedule;
  std::shared_ptr<const ReplayProgram> program;
  Traffic traffic;  ///< without the names of cost models and what the papers count
  AllocationChanges allocation_changes;
  Memory memory;  ///< of the schedule's own buffers, without points
  Flops hardware_flops, hardware_fp8_flops;
  bool timed_allocations = false;  ///< the times of the step bear on reserved memory
  /// The last that was found, if they do not. Kept by run_simulation(): a step is for one thread.
  mutable std::optional<ReservedMemory> reserved;
};

[[nodiscard]] PreparedStep prepare_step(std::shared_ptr<const Schedule> schedule, Elements parameters);
/// After the works and the sizes of buffers of its schedule changed, but neither its ops nor what its collectives carry.
void refresh_sizes(PreparedStep& step);

/// Equal, bit for bit, to run_simulation of the schedule itself.
[[nodiscard]] SimulationResult run_simulation(const PreparedStep& step, const CostModel& costs, const JobFacts& job, Detail detail = {});

}  // namespace shardsim
