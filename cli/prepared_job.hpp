// SPDX-License-Identifier: Apache-2.0
// What scenarios that differ in their cluster's speeds alone share.
#pragma once

#include <vector>

#include "cli/simulation_job.hpp"
#include "sim/core/node_cache.hpp"
#include "sim/engine/prepared_step.hpp"

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
  struct Key {
    std::shared_ptr<const Model> model;  ///< stands for its training block too: a ScenarioCache makes one for both
    StrategyChoice strategy;
    std::int64_t world_size, gpus_per_node;
  };
  struct SameJob {
    bool operator()(const Key& a, const Key& b) const;
  };
  std::shared_ptr<const PreparedJob> job_of(const Scenario& scenario);
  std::shared_ptr<const CostModel> machine_of(const Scenario& scenario);

  // Neighbours in a sweep share a job. More of them would only take memory that is in no cache of the processor.
  RecentValues<Key, PreparedJob, SameJob> jobs_{1};
  ByTree<CostModel> machines_{32};  // by the cluster block
};

}  // namespace shardsim
