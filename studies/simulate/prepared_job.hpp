// SPDX-License-Identifier: Apache-2.0
// What scenarios that differ in their cluster's speeds alone share.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "sim/config/node_cache.hpp"
#include "sim/engine/prepared_step.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {

struct PreparedJob {
  PreparedStep step;
  JobFacts facts;
};

/// Emits the schedule of a scenario that was read, and folds what does not depend on the machine's speeds.
[[nodiscard]] PreparedJob prepare_job(const Scenario& scenario);
/// Equal, bit for bit, to simulate_scenario(scenario). `job` is of a scenario with the same model, training, strategy and numbers of nodes
/// and GPUs; `costs` of this scenario's cluster.
[[nodiscard]] SimulationResult simulate_prepared(const Scenario& scenario, const PreparedJob& job, const CostModel& costs, Detail detail);

/// Simulates scenarios that a ScenarioCache read, and keeps what the last few shared. For one thread.
class JobCache {
 public:
  [[nodiscard]] SimulationResult simulate(const Scenario& scenario, Detail detail);

 private:
  /// A job with all that its scenario held of it.
  struct Known {
    std::shared_ptr<const Model> model;  ///< stands for its training block too: a ScenarioCache makes one for both
    Job job;
    std::shared_ptr<Schedule> schedule;  ///< of the step
    PreparedJob prepared;
  };
  [[nodiscard]] const PreparedJob& job_of(const Scenario& scenario);
  void emit_anew(const Scenario& scenario, const Job& job);
  void change_batch_shape(const Scenario& scenario, const Job& job);
  /// The cluster block and the stack.
  using Machine = std::pair<ConfigNode, std::shared_ptr<const Stack>>;
  struct SameMachine {
    bool operator()(const Machine& a, const Machine& b) const { return a.second == b.second && say_the_same(a.first, b.first); }
  };
  std::shared_ptr<const CostModel> machine_of(const Scenario& scenario);

  // Neighbours in a sweep share a job, or the ops of one. More of them would only take memory that is in no cache of the processor.
  std::optional<Known> last_;
  RecentValues<Machine, CostModel, SameMachine> machines_{32};
};

}  // namespace shardsim
