// SPDX-License-Identifier: Apache-2.0
// A scenario with one thing changed, simulated: what answers in words are made of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/reader/scenario.hpp"
#include "sim/engine/result.hpp"
#include "sim/memory/memory_explanation.hpp"

namespace shardsim {

struct Change {
  std::string text;                      ///< "full activation checkpointing"
  std::vector<std::string> assignments;  ///< as for --set
};

/// The step of the scenario with a few keys changed; nothing where it cannot run.
[[nodiscard]] std::optional<SimulationResult> what_if(const Scenario& base, const std::vector<std::string>& assignments);

/// Single changes that may lower the peak, in order of what they cost the user. What the scenario does already is left out.
[[nodiscard]] std::vector<Change> memory_changes(const Scenario& base);

/// Simulates the scenario on twice as many ranks and with every one of memory_changes.
[[nodiscard]] MemoryExplanation explain_memory(const Scenario& base, const SimulationResult& now);

}  // namespace shardsim
