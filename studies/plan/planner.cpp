// SPDX-License-Identifier: Apache-2.0
#include "studies/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "studies/compare/config_lines.hpp"
#include "studies/compare/variant.hpp"
#include "studies/plan/feasible.hpp"
#include "studies/simulate/assumptions.hpp"
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
  SearchModel model = search_model(base, request.headroom);
  if (progress) model.advanced = [&progress, total](std::size_t settled) { progress(settled, total); };
  return search(std::move(all), model);
}

// Steps of more micro-batches than this stay on the line through shorter ones: a whole one would take longer than the search.
constexpr std::int64_t most_exact_micro_batches = 64;

/// Those that a plan names are simulated whole, so that whoever runs the command sees the same figures. One that turns out not to fit is
/// taken out, and what takes its place is looked at in turn.
void confirm(const Scenario& base, const PlanRequest& request, std::vector<Evaluated>& fitting) {
  const auto is_whole = [](const Evaluated& e) {
    return e.candidate.accumulation <= exact_micro_batches || e.candidate.accumulation > most_exact_micro_batches;
  };
  std::set<const Evaluated*> seen;  // elements stay where they are until the end
  std::set<const Evaluated*> dropped;
  while (true) {
    std::vector<Evaluated> rest;
    std::vector<Evaluated*> origin;
    for (Evaluated& e : fitting)
      if (!dropped.contains(&e)) {
        rest.push_back(e);
        origin.push_back(&e);
      }
    const auto place = [&](const Evaluated* e) { return origin[static_cast<std::size_t>(e - rest.data())]; };
    std::set<Evaluated*> open;
    for (const Evaluated* e : pareto_front(rest)) open.insert(place(e));
    const Best best = best_of(rest);
    for (const Evaluated* e : {best.time, best.cost, best.gpus})
      if (e != nullptr) open.insert(place(e));
    std::erase_if(open, [&](const Evaluated* e) { return is_whole(*e) || seen.contains(e); });
    if (open.empty()) break;
    for (Evaluated* e : open) {
      seen.insert(e);
      const auto scenario = scenario_of(base, e->candidate);
      if (!scenario) continue;
      e->result = simulate_scenario(*scenario);
      e->result.schedule = nullptr;
      if (!fits_with(e->result.memory, request.headroom)) dropped.insert(e);
    }
  }
  std::erase_if(fitting, [&](const Evaluated& e) { return dropped.contains(&e); });
}

PlanEntry entry_of(const Scenario& base, const PlanRequest& request, const Evaluated& e) {
  PlanEntry entry{e, economics(base, request, e), assignments_of(base, e.candidate), {}, {}};
  const auto scenario = scenario_of(base, e.candidate);
  if (!scenario) return entry;
  entry.config = config_lines(*scenario, entry.set);
  entry.config_of = config_of(*scenario);
  return entry;
}

/// The fastest of each other library on as many GPUs as the winner: what a change of code base would bring.
std::vector<PlanEntry> fastest_elsewhere(const Scenario& base, const PlanRequest& request, const Evaluated& winner) {
  std::vector<PlanEntry> out;
  if (request.others.empty()) return out;
  PlanRequest theirs = request;
  theirs.strategies = request.others;
  theirs.nodes = {winner.candidate.nodes};
  theirs.parts_of_a_node = winner.candidate.gpus_per_node < base.cluster.gpus_per_node;
  std::vector<Candidate> all = candidates(base, theirs);
  std::erase_if(all, [&](const Candidate& c) { return c.gpus() != winner.gpus(); });
  std::vector<Evaluated> fitting = search(std::move(all), search_model(base, request.headroom)).fitting;
  std::stable_sort(fitting.begin(), fitting.end(), [](const Evaluated& a, const Evaluated& b) { return a.time() < b.time(); });
  for (const Evaluated& e : fitting) {
    const auto known = [&](const PlanEntry& entry) { return same_library(entry.evaluated.candidate.strategy, e.candidate.strategy); };
    if (std::none_of(out.begin(), out.end(), known)) out.push_back(entry_of(base, request, e));
  }
  return out;
}

/// Warnings and assumptions of the way that the plan names first, and what simulate says of the scenario as written.
void add_remarks(const Scenario& base, Plan& plan) {
  const auto scenario = plan.time ? scenario_of(base, plan.time->evaluated.candidate) : Result<Scenario>(base);
  if (!scenario) return;
  plan.warnings = base.warnings;
  if (!plan.time) return;
  const SimulationResult& best = plan.time->evaluated.result;
  for (const std::string& warning : best.warnings)
    if (std::find(plan.warnings.begin(), plan.warnings.end(), warning) == plan.warnings.end()) plan.warnings.push_back(warning);
  Scenario shorter = *scenario;  // shares of a step do not need all of its micro-batches
  shorter.training.gradient_accumulation_steps =
      std::min<std::int32_t>(shorter.training.gradient_accumulation_steps, static_cast<std::int32_t>(exact_micro_batches));
  plan.assumed = assumptions_of(shorter, simulate_scenario(shorter));
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

std::string PlanEntry::command(const std::string& scenario) const {
  std::string out = "shardsim simulate " + scenario;
  for (const std::string& assignment : set) {
    const bool plain = assignment.find_first_of(" {}[]'\"$*?") == std::string::npos;
    out += " --set " + (plain ? assignment : "'" + assignment + "'");
  }
  return out;
}

std::optional<std::int64_t> largest_micro_batch(const Scenario& base, double headroom) {
  const auto fits = [&](std::int64_t m) {
    const auto scenario = vary(base, {fmt::format("training.micro_batch_size={}", m)});
    return scenario && fits_with(simulate_scenario(*scenario).memory, headroom);
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
  SearchResult found = search_candidates(base, plan.request, progress);
  confirm(base, plan.request, found.fitting);
  plan.evaluated = found.evaluated;
  plan.pruned = found.pruned;
  plan.refused = found.refused;
  const auto entry = [&](const Evaluated& e) { return entry_of(base, plan.request, e); };
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
  if (best.time != nullptr) plan.elsewhere = fastest_elsewhere(base, plan.request, *best.time);
  if (found.fragile && (best.time == nullptr || found.fragile->time() < best.time->time() * 0.98)) plan.fragile = entry(*found.fragile);
  plan.left_out = left_out(base, plan.request);
  plan.largest_micro_batch = largest_micro_batch(base, plan.request.headroom);
  add_remarks(base, plan);
  plan.answers = answers(base, plan, found);
  return plan;
}

}  // namespace shardsim
