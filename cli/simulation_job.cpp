// SPDX-License-Identifier: Apache-2.0
#include "cli/simulation_job.hpp"

#include <utility>

namespace shardsim {
namespace {

JobFacts facts_of(const Scenario& scenario, const Job& job) {
  const Model& model = *scenario.model;
  const std::int64_t micro_batches = scenario.training.gradient_accumulation_steps;
  JobFacts facts;
  facts.model_name = model.name;
  facts.parameters = model.total();
  facts.trainable_parameters = model.trainable();
  facts.tokens_per_step_per_rank = model.tokens_per_micro_batch * micro_batches;
  facts.model_flops_per_step = model.model_flops_per_micro_batch * static_cast<double>(micro_batches);
  facts.flop_convention = model.flop_convention;
  facts.compute = scenario.training.precision.compute;
  facts.textbook_bytes = textbook(job).sent_per_rank;
  return facts;
}

}  // namespace

SimulationResult simulate_scenario(const Scenario& scenario, Detail detail) {
  const Job job = scenario.job();
  if (Problems problems = check(job); !problems.empty()) throw InputError(std::move(problems));
  auto schedule = std::make_shared<const Schedule>(emit(job));
  SimulationResult result = run_simulation(std::move(schedule), CostModel(scenario.cluster), facts_of(scenario, job), detail);
  result.scenario = scenario.file;
  result.warnings.insert(result.warnings.begin(), scenario.warnings.begin(), scenario.warnings.end());
  return result;
}

}  // namespace shardsim
