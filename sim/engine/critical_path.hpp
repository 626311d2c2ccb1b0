// SPDX-License-Identifier: Apache-2.0
// The longest path through the graph of a step: an oracle for the engine, built apart from it.
#pragma once

#include <span>
#include <vector>

#include "sim/engine/engine.hpp"

namespace shardsim {

struct CriticalPath {
  /// When each op of each program is done, at best: device ops on their stream, others on the host.
  std::vector<std::vector<SimTime>> done;
  SimTime end;
  /// The ops of the first program that are on a longest path, in order.
  std::vector<OpId> ops;
};

/// Exact where nothing contends: no shares of resources and no slowdown of compute beside collectives. Throws std::logic_error if the
/// graph has a cycle (the programs deadlock).
[[nodiscard]] CriticalPath critical_path(std::span<const RankProgram> programs);

}  // namespace shardsim
