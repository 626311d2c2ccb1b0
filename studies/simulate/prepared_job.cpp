// SPDX-License-Identifier: Apache-2.0
#include "studies/simulate/prepared_job.hpp"

#include <utility>

#include "strategies/batch_shape.hpp"
#include "studies/simulate/checkpoint_job.hpp"
#include "studies/simulate/measured.hpp"

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
  facts.fp8_flops_per_step = model.fp8_flops_per_micro_batch * static_cast<double>(micro_batches);
  facts.flop_convention = model.flop_convention;
  facts.compute = scenario.training.precision.compute;
  facts.textbook_bytes = textbook(job).sent_per_rank;
  return facts;
}

bool is_job_of(const Job& job, const Scenario& scenario) {
  return job.world_size == scenario.cluster.world_size() && job.gpus_per_node == scenario.cluster.gpus_per_node &&
         job.strategy.name == scenario.strategy.name && job.strategy.semantics == scenario.strategy.semantics &&
         job.strategy.version == scenario.strategy.version && job.strategy.options.values() == scenario.strategy.options.values();
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
  result.measured = measured_run(scenario, result);
  result.scenario = scenario.file;
  result.stack = scenario.stack->name;
  result.warnings.insert(result.warnings.begin(), scenario.warnings.begin(), scenario.warnings.end());
  return result;
}

SimulationResult simulate_scenario(const Scenario& scenario, Detail detail) {
  if (Problems problems = check(scenario.job()); !problems.empty()) throw InputError(std::move(problems));
  return simulate_prepared(scenario, prepare_job(scenario), CostModel(scenario.cluster, *scenario.stack), detail);
}

const PreparedJob& JobCache::job_of(const Scenario& scenario) {
  const bool same_model = last_ && last_->model == scenario.model;
  if (same_model && is_job_of(last_->job, scenario)) return last_->prepared;
  const Job job = scenario.job();
  if (last_ && share_ops(last_->job, job))
    change_batch_shape(scenario, job);
  else
    emit_anew(scenario, job);
  return last_->prepared;
}

void JobCache::emit_anew(const Scenario& scenario, const Job& job) {
  last_.reset();  // before the next is made: its memory is at hand for it
  auto schedule = std::make_shared<Schedule>(emit(job));
  JobFacts facts = facts_of(scenario, job);
  PreparedStep step = prepare_step(schedule, facts.parameters);
  last_ = Known{scenario.model, job, std::move(schedule), {std::move(step), std::move(facts)}};
}

void JobCache::change_batch_shape(const Scenario& scenario, const Job& job) {
  PreparedJob& prepared = last_->prepared;
  prepared.facts = facts_of(scenario, job);
  constexpr int own_uses = 2;  // by the cache, and by the step
  const bool is_shared = last_->schedule.use_count() > own_uses;
  if (is_shared) last_->schedule = std::make_shared<Schedule>(*last_->schedule);  // a result that somebody keeps stays as it is
  set_batch_shape(*last_->schedule, job);
  if (is_shared)
    prepared.step = prepare_step(last_->schedule, prepared.facts.parameters);
  else
    refresh_sizes(prepared.step);
  last_->model = scenario.model;
  last_->job = job;
}

std::shared_ptr<const CostModel> JobCache::machine_of(const Scenario& scenario) {
  const ConfigNode& block = *scenario.root.find("cluster");
  const Machine key{block, scenario.stack};
  if (auto machine = machines_.find(key)) return machine;
  auto machine = std::make_shared<const CostModel>(scenario.cluster, *scenario.stack);
  machines_.add(key, machine);
  return machine;
}

SimulationResult JobCache::simulate(const Scenario& scenario, Detail detail) {
  return simulate_prepared(scenario, job_of(scenario), *machine_of(scenario), detail);
}

}  // namespace shardsim
