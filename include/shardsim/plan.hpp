// SPDX-License-Identifier: Apache-2.0
// How to run a job: nodes, strategy, micro-batch and checkpointing, with days and money.
#pragma once

#include "shardsim/scenario.hpp"
#include "studies/plan/planner.hpp"
#include "studies/plan/request.hpp"

namespace shardsim {

/// `progress` is called from the threads that search.
[[nodiscard]] inline Expected<Plan> plan(const Scenario& scenario, const SearchProgress& progress = {}) {
  return expected_from([&] { return make_plan(scenario, progress); });
}

}  // namespace shardsim
