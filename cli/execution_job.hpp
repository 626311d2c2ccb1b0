// SPDX-License-Identifier: Apache-2.0
// A scenario executed and simulated: the path from what the user wrote to predicted beside measured.
#pragma once

#include "calibrate/execute/backend.hpp"
#include "cli/execution_report.hpp"
#include "scenarios/scenario.hpp"

namespace shardsim {

/// Predicted time of a step whose operations follow each other, as the backends execute them.
[[nodiscard]] Seconds step_in_order(const Scenario& scenario);

/// Runs the scenario on `platform`, with as many ranks as its cluster has GPUs. What cannot be executed is an InputError.
[[nodiscard]] Execution execute_scenario(execute::Platform& platform, const Scenario& scenario, const execute::ExecutionOptions& options = {});

}  // namespace shardsim
