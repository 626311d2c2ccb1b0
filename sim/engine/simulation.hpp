// SPDX-License-Identifier: Apache-2.0
// One call from a Schedule and a Cluster to a SimulationResult: costs, engine, account, memory, summary.
#pragma once

#include <optional>

#include "sim/costs/cost_model.hpp"
#include "sim/engine/result.hpp"
#include "sim/memory/allocator.hpp"

namespace shardsim {

/// What the summary needs to know beyond the schedule.
struct JobFacts {
  std::string model_name{};
  Elements parameters{}, trainable_parameters{};
  Tokens tokens_per_step_per_rank{};
  Flops fp8_flops_per_step{};    ///< the part of model_flops_per_step that runs in fp8
  Flops model_flops_per_step{};  ///< per rank, without recomputation
  std::string flop_convention{};
  DType compute = DType::bf16;  ///< peak that MFU is measured against
  Bytes textbook_bytes{};       ///< per rank and step
};

struct Detail {
  bool timeline = false;  ///< keep slices and memory points (traces, HTML)
  /// Reserved memory by the allocator's model; without it by the simple rule of one pool a stream, ten times as fast (sweeps, plans).
  /// A capacity of zero stands for what the GPU has left.
  std::optional<AllocatorOptions> allocator = AllocatorOptions{};
};

[[nodiscard]] SimulationResult run_simulation(std::shared_ptr<const Schedule> schedule, const CostModel& costs, const JobFacts& job,
                                              Detail detail = {});

}  // namespace shardsim
