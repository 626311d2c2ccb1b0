// SPDX-License-Identifier: Apache-2.0
#include "studies/execute/execution_job.hpp"

#include <algorithm>
#include <cmath>

#include "studies/simulate/simulation_job.hpp"

namespace shardsim {

Seconds Execution::measured_step() const {
  std::vector<double> times = result.step_seconds;
  std::sort(times.begin(), times.end());
  return Seconds{times.empty() ? 0 : times[times.size() / 2]};
}

bool Execution::agree() const {
  if (!result.agree()) return false;
  if (!time_tolerance) return true;
  return std::abs(measured_step() / predicted_step - 1) <= *time_tolerance;
}

Seconds step_in_order(const Scenario& scenario) {
  auto schedule = std::make_shared<const Schedule>(execute::in_order(emit(scenario.job())));
  return run_simulation(std::move(schedule), CostModel(scenario.cluster, *scenario.stack), {}, {.allocator = std::nullopt}).step.time;
}

Execution execute_scenario(execute::Platform& platform, const Scenario& scenario, const execute::ExecutionOptions& options) {
  const Job job = scenario.job();
  if (Problems problems = check(job); !problems.empty()) throw InputError(std::move(problems));
  Problems problems;
  for (const std::string& reason : execute::cannot_execute(job)) problems.add(scenario.root.where, reason);
  if (!problems.empty()) throw InputError(std::move(problems));
  const SimulationResult predicted = simulate_scenario(scenario);
  return {.result = execute::execute_on(platform, job, options),
          .predicted_step = step_in_order(scenario),
          .overlapped_step = predicted.step.time,
          .psi_units = predicted.traffic.psi_units,
          .textbook = predicted.traffic.textbook};
}

namespace {

/// Every class of kernels at so many times its rate.
void scale_kernels(Gpu& gpu, double factor) {
  for (double* rate : {&gpu.gemm.efficiency, &gpu.gemm.memory_efficiency, &gpu.attention_efficiency, &gpu.attention_backward_efficiency,
                       &gpu.elementwise_efficiency, &gpu.optimizer_efficiency})
    *rate *= factor;
}

}  // namespace

Scenario on_this_machine(Scenario scenario, const Profile& machine, const std::function<Seconds(const Execution&)>& measured, int steps) {
  scenario.cluster.profile = machine;
  scenario.stack = std::make_shared<const Stack>();  // the executor is no Python
  Scenario alone = scenario;
  alone.cluster.nodes = alone.cluster.gpus_per_node = 1;
  alone.strategy.options = {};  // how many ranks share or replicate what
  execute::LocalPlatform platform;
  const Seconds time = measured(execute_scenario(platform, alone, {.steps = steps}));
  // Copies do not scale with the efficiency of kernels, so that it is approached.
  for (int i = 0; i < 8; ++i) scale_kernels(alone.cluster.profile.gpu, step_in_order(alone) / time);
  scenario.cluster.profile.gpu = alone.cluster.profile.gpu;
  return scenario;
}

}  // namespace shardsim
