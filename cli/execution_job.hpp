// SPDX-License-Identifier: Apache-2.0
// A scenario executed and simulated: the path from what the user wrote to predicted beside measured.
#pragma once

#include <functional>

#include "calibrate/execute/backend.hpp"
#include "cli/execution_report.hpp"
#include "scenarios/scenario.hpp"

namespace shardsim {

/// Predicted time of a step whose operations follow each other, as the backends execute them.
[[nodiscard]] Seconds step_in_order(const Scenario& scenario);

/// Runs the scenario on `platform`, with as many ranks as its cluster has GPUs. What cannot be executed is an InputError.
[[nodiscard]] Execution execute_scenario(execute::Platform& platform, const Scenario& scenario, const execute::ExecutionOptions& options = {});

/// `scenario` on `machine` (a profile of this machine), with compute as slow as one rank alone was measured to be: what microbenchmarks do
/// not see of the executor itself. `measured` takes the figure from that execution: the median step, say.
[[nodiscard]] Scenario on_this_machine(Scenario scenario, const Profile& machine, const std::function<Seconds(const Execution&)>& measured, int steps);

}  // namespace shardsim
