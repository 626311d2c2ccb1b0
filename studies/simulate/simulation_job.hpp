// SPDX-License-Identifier: Apache-2.0
// From a scenario to the result of its step: the one path that simulate, compare, plan, sweep, check and formula share.
#pragma once

#include "scenarios/reader/scenario.hpp"
#include "sim/engine/simulation.hpp"

namespace shardsim {

/// Checks the job, emits its schedule and simulates it on the scenario's cluster. Combinations that the strategy's library forbids
/// are an InputError.
[[nodiscard]] SimulationResult simulate_scenario(const Scenario& scenario, Detail detail = {});

/// The value of a reading, or an InputError with its problems.
template <class T>
[[nodiscard]] T value_or_throw(Result<T> result) {
  if (!result) throw InputError(std::move(result.error()));
  return std::move(*result);
}

}  // namespace shardsim
