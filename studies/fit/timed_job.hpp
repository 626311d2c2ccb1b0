// SPDX-License-Identifier: Apache-2.0
// A job whose prices vary: its schedule is made once.
#pragma once

#include <memory>

#include "studies/simulate/prepared_job.hpp"

namespace shardsim {

class TimedJob {
 public:
  explicit TimedJob(Scenario scenario) : scenario_(std::move(scenario)), job_(prepare_job(scenario_)) {}

  /// The step on the scenario's machine with each price stretched by the exponential of its logarithm.
  [[nodiscard]] SimulationResult run(std::span<const double> logs) const;
  [[nodiscard]] const Scenario& scenario() const { return scenario_; }

 private:
  Scenario scenario_;
  PreparedJob job_;
};

}  // namespace shardsim
