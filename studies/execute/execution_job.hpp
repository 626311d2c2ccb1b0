// SPDX-License-Identifier: Apache-2.0
// A scenario executed and simulated: the path from what the user wrote to predicted beside measured.
#pragma once

#include <functional>

#include "calibrate/execute/backends/backend.hpp"
#include "calibrate/execute/execution.hpp"
#include "scenarios/reader/scenario.hpp"

namespace shardsim {

/// One strategy's execution beside its simulation.
struct Execution {
  execute::ExecutionResult result;
  Seconds predicted_step;                  ///< one operation after another, as backends execute them
  Seconds overlapped_step;                 ///< with streams beside each other, as a GPU runs them
  double psi_units = 0;                    ///< of one step (see Traffic)
  Bytes textbook{};                        ///< what the papers count for one step of a rank
  std::optional<double> time_tolerance{};  ///< relative; without it time decides nothing

  [[nodiscard]] Seconds measured_step() const;  ///< the median
  [[nodiscard]] bool agree() const;
};

struct ExecutionSummary {
  std::string backend;
  std::string scenario;
  std::int64_t ranks = 1;
  std::vector<Execution> strategies;
  bool calibrated = false;  ///< predicted on a profile of the machine that ran
};

/// Predicted time of a step whose operations follow each other, as the backends execute them.
[[nodiscard]] Seconds step_in_order(const Scenario& scenario);

/// Runs the scenario on `platform`, with as many ranks as its cluster has GPUs. What cannot be executed is an InputError.
[[nodiscard]] Execution execute_scenario(execute::Platform& platform, const Scenario& scenario,
                                         const execute::ExecutionOptions& options = {});

/// `scenario` on `machine` (a profile of this machine), with compute as slow as one rank alone was measured to be: what microbenchmarks do
/// not see of the executor itself. `measured` takes the figure from that execution: the median step, say.
[[nodiscard]] Scenario on_this_machine(Scenario scenario, const Profile& machine, const std::function<Seconds(const Execution&)>& measured,
                                       int steps);

}  // namespace shardsim
