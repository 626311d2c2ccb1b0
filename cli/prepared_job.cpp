// SPDX-License-Identifier: Apache-2.0
#include "cli/prepared_job.hpp"

#include <utility>

#include "cli/checkpoint_job.hpp"

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

PreparedJob prepare_job(const Scenario& scenario) {
  const Job job = scenario.job();
  JobFacts facts = facts_of(scenario, job);
  PreparedStep step = prepare_step(std::make_shared<const Schedule>(emit(job)), facts.parameters);
  return {std::move(step), std::move(facts)};
}

SimulationResult simulate_prepared(const Scenario& scenario, const PreparedJob& job, const CostModel& costs, Detail detail) {
  if (detail.allocator) {
    detail.allocator->expandable_segments = scenario.training.allocator.expandable_segments;
    detail.allocator->max_split_size = scenario.training.allocator.max_split_size;
  }
  SimulationResult result = run_simulation(job.step, costs, job.facts, detail);
  add_checkpoint(scenario, result);
  result.scenario = scenario.file;
  result.warnings.insert(result.warnings.begin(), scenario.warnings.begin(), scenario.warnings.end());
  return result;
}

SimulationResult simulate_scenario(const Scenario& scenario, Detail detail) {
  if (Problems problems = check(scenario.job()); !problems.empty()) throw InputError(std::move(problems));
  return simulate_prepared(scenario, prepare_job(scenario), CostModel(scenario.cluster), detail);
}

bool JobCache::SameJob::operator()(const Key& a, const Key& b) const {
  return a.model == b.model && a.world_size == b.world_size && a.gpus_per_node == b.gpus_per_node && a.strategy.name == b.strategy.name &&
         a.strategy.semantics == b.strategy.semantics && a.strategy.options.values() == b.strategy.options.values();
}

std::shared_ptr<const PreparedJob> JobCache::job_of(const Scenario& scenario) {
  Key key{scenario.model, scenario.strategy, scenario.cluster.world_size(), scenario.cluster.gpus_per_node};
  if (auto job = jobs_.find(key)) return job;
  jobs_.clear();  // before the next is made: its memory is at hand for it
  auto job = std::make_shared<const PreparedJob>(prepare_job(scenario));
  jobs_.add(std::move(key), job);
  return job;
}

std::shared_ptr<const CostModel> JobCache::machine_of(const Scenario& scenario) {
  const Node& block = *scenario.root.find("cluster");
  if (auto machine = machines_.find(block)) return machine;
  auto machine = std::make_shared<const CostModel>(scenario.cluster);
  machines_.add(block, machine);
  return machine;
}

SimulationResult JobCache::simulate(const Scenario& scenario, Detail detail) {
  const auto job = job_of(scenario);
  return simulate_prepared(scenario, *job, *machine_of(scenario), detail);
}

}  // namespace shardsim
