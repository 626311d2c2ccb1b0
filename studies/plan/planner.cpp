// SPDX-License-Identifier: Apache-2.0
#include "studies/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "studies/compare/variant.hpp"
#include "studies/simulate/checkpoint_job.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t most_sequences = std::int64_t{1} << 16;

/// How long training stands still for one checkpoint: in the format that the scenario names, or in the strategy's own.
Seconds checkpoint_stall(const Scenario& base, const PlanRequest& request, const Evaluated& e) {
  CheckpointRequest named = base.checkpoint.value_or(CheckpointRequest{});
  named.load_world_size = {};
  const CheckpointRequest own{};
  const auto scenario = scenario_of(base, e.candidate);
  for (CheckpointRequest checkpoint : {named, own}) {
    if (!scenario || !check_checkpoint(scenario->job(), checkpoint).empty()) continue;
    checkpoint.write_bandwidth = checkpoint.read_bandwidth = request.checkpoint_bandwidth;
    return report_checkpoint(*scenario, checkpoint).stall;
  }
  return sum(e.result.memory.persistent) * e.candidate.gpus_per_node / request.checkpoint_bandwidth;  // too many ranks to look at each
}

SearchResult search_candidates(const Scenario& base, const PlanRequest& request, const SearchProgress& progress) {
  std::vector<Candidate> all = candidates(base, request);
  const std::size_t total = all.size();
  SearchModel model = search_model(base);
  if (progress) model.advanced = [&progress, total](std::size_t settled) { progress(settled, total); };
  return search(std::move(all), model);
}

/// The front gets faster with every GPU, so its first that ends in time is the smallest.
std::optional<PlanEntry> within_days(const Plan& plan) {
  if (!plan.request.days) return std::nullopt;
  for (const PlanEntry& entry : plan.pareto)
    if (entry.economics.wall.base() <= *plan.request.days * 86400) return entry;
  return std::nullopt;
}

}  // namespace

Economics economics(const Scenario& base, const PlanRequest& request, const Evaluated& e) {
  Economics out;
  out.steps = request.tokens / static_cast<double>(request.global_batch * base.training.sequence_length);
  out.checkpoint = checkpoint_stall(base, request, e);
  const Reliability job{out.checkpoint, request.restart, request.node_mtbf / static_cast<double>(e.candidate.nodes)};
  out.interval = request.checkpoint_interval.value_or(optimum_interval(job));
  out.goodput = goodput(job, out.interval);
  out.wall = e.time() * (out.steps / std::max(out.goodput, 1e-9));
  out.gpu_hours = out.wall.base() / 3600 * static_cast<double>(e.gpus());
  if (request.price_per_gpu_hour) out.cost = out.gpu_hours * *request.price_per_gpu_hour;
  return out;
}

std::optional<std::int64_t> largest_micro_batch(const Scenario& base) {
  const auto fits = [&](std::int64_t m) {
    const auto scenario = vary(base, {fmt::format("training.micro_batch_size={}", m)});
    return scenario && simulate_scenario(*scenario).memory.fits;
  };
  if (!fits(1)) return std::nullopt;
  std::int64_t low = 1, high = 2;
  while (high <= most_sequences && fits(high)) low = std::exchange(high, high * 2);
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

Plan make_plan(const Scenario& base, const SearchProgress& progress) {
  Plan plan;
  plan.scenario = base.file;
  plan.request = value_or_throw(read_plan(base));
  const SearchResult found = search_candidates(base, plan.request, progress);
  plan.evaluated = found.evaluated;
  plan.pruned = found.pruned;
  plan.refused = found.refused;
  const auto entry = [&](const Evaluated& e) { return PlanEntry{e, economics(base, plan.request, e)}; };
  const Best best = best_of(found.fitting);
  if (best.time != nullptr) {
    plan.time = entry(*best.time);
    plan.cost = entry(*best.cost);
    plan.gpus = entry(*best.gpus);
    plan.minimum_gpus = refined_minimum(base, plan.request, best.gpus->gpus());
  } else {
    plan.gpus_beyond = minimum_beyond(base, plan.request);
  }
  for (const Evaluated* e : pareto_front(found.fitting)) plan.pareto.push_back(entry(*e));
  plan.deadline = within_days(plan);
  plan.left_out = left_out(base, plan.request);
  plan.largest_micro_batch = largest_micro_batch(base);
  plan.answers = answers(base, plan, found);
  return plan;
}

}  // namespace shardsim
