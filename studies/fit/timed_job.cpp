// SPDX-License-Identifier: Apache-2.0
#include "studies/fit/timed_job.hpp"

#include "studies/fit/prices.hpp"

namespace shardsim {

SimulationResult TimedJob::run(std::span<const double> logs) const {
  Cluster cluster = scenario_.cluster;
  cluster.profile = stretched(std::move(cluster.profile), logs);
  Detail detail;
  detail.allocator = std::nullopt;
  return run_simulation(job_.step, CostModel(cluster, *scenario_.stack), job_.facts, detail);
}

}  // namespace shardsim
