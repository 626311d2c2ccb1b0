// SPDX-License-Identifier: Apache-2.0
#include "studies/simulate/checkpoint_job.hpp"

#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

/// Shards do not depend on micro-batches: one is enough to lay them out.
Schedule shards_of(Job job) {
  job.training.gradient_accumulation_steps = 1;
  return emit(job);
}

}  // namespace

CheckpointReport report_checkpoint(const Scenario& scenario, const CheckpointRequest& request) {
  const Job saving = scenario.job(), loading = loading_job(saving, request);
  const Schedule saved = shards_of(saving);
  const CheckpointMachine machine{.gpus_per_node = scenario.cluster.gpus_per_node,
                                  .write_per_node = request.write_bandwidth.value(),
                                  .read_per_node = request.read_bandwidth.value(),
                                  .host_link = scenario.cluster.profile.gpu.host_link};
  if (loading.world_size == saving.world_size) return checkpoint_report(saving, saved, saving, saved, request, machine);
  return checkpoint_report(saving, saved, loading, shards_of(loading), request, machine);
}

void add_checkpoint(const Scenario& scenario, SimulationResult& result) {
  if (!scenario.checkpoint) return;
  result.checkpoint = std::make_shared<const CheckpointReport>(report_checkpoint(scenario, *scenario.checkpoint));
  const Bytes needed = result.checkpoint->host_per_node, there = scenario.cluster.profile.node.host_memory;
  if (there > Bytes{} && needed > there)
    result.warnings.push_back("a checkpoint does not fit: " + to_text(needed) + " of host memory a node needed, " + to_text(there) +
                              " there");
}

}  // namespace shardsim
