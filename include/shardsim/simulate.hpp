// SPDX-License-Identifier: Apache-2.0
// One step of a scenario: the bytes each rank sends, memory over the step, its time and what bounds it.
#pragma once

#include "shardsim/scenario.hpp"
#include "sim/engine/simulation.hpp"
#include "studies/compare/what_if.hpp"
#include "studies/simulate/assumptions.hpp"
#include "studies/simulate/simulate_json.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {

/// Throws nothing; a job that does not fit still simulates (result.memory.fits is false).
[[nodiscard]] inline Expected<SimulationResult> simulate(const Scenario& scenario, Detail detail = {}) {
  return expected_from([&] { return simulate_scenario(scenario, detail); });
}

}  // namespace shardsim
