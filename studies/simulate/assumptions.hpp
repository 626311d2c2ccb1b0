// SPDX-License-Identifier: Apache-2.0
// What a prediction assumes about its machine, and how much hangs on each: found by simulating the step with that value a tenth worse.
#pragma once

#include "scenarios/reader/scenario.hpp"
#include "sim/engine/assumption.hpp"
#include "sim/engine/result.hpp"

namespace shardsim {

/// Values of the profile that are neither measured nor set by the scenario and on which the step or the memory of `now` depends.
[[nodiscard]] Assumptions assumptions_of(const Scenario& scenario, const SimulationResult& now);

}  // namespace shardsim
