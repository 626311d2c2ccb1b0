// SPDX-License-Identifier: Apache-2.0
// A plan in words. Every "what would move it" is simulated, not looked up.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/planner.hpp"
#include "cli/planner_options.hpp"
#include "cli/simulation_job.hpp"
#include "cli/variant.hpp"
#include "cli/what_if.hpp"
#include "sim/core/units_text.hpp"

namespace shardsim {
namespace {

constexpr double hidden_share = 0.01;  // of the step: less exposed communication counts as hidden

std::string percent(double share) { return fmt::format("{:.{}f} %", share * 100, share < 0.1 ? 1 : 0); }

std::string largest_term(const Memory& memory) {
  const auto largest = std::max_element(memory.at_peak.begin(), memory.at_peak.end());
  const auto index = static_cast<std::size_t>(largest - memory.at_peak.begin());
  std::string name(category_names[index]);
  std::replace(name.begin(), name.end(), '_', ' ');
  return fmt::format("{} ({} of {})", name, to_text(*largest), to_text(memory.device_peak));
}

/// The cheapest change that makes a job fit that does not: the first that does, in order of what it costs the user.
std::string cheapest_rescue(const Scenario& base) {
  for (const Change& change : memory_changes(base))
    if (const auto result = what_if(base, change.assignments); result && result->memory.fits)
      return fmt::format("{} alone makes it fit ({}, step {})", change.text, to_text(result->memory.device_peak),
                         to_text(result->step.time));
  return "no single change makes it fit";
}

Answer does_it_fit(const Scenario& base, const SimulationResult& now) {
  const Memory& memory = now.memory;
  const std::string question = "Does the scenario as written fit?";
  if (memory.fits)
    return {question, fmt::format("yes: {} of {}", to_text(memory.device_peak), to_text(memory.capacity)),
            fmt::format("the largest term at the peak is {}; {} are free", largest_term(memory),
                        to_text(memory.capacity - memory.device_peak))};
  return {question, fmt::format("no: {} of {}", to_text(memory.device_peak), to_text(memory.capacity)),
          fmt::format("the largest term at the peak is {}; {}", largest_term(memory), cheapest_rescue(base))};
}

Answer fewest_gpus(const Plan& plan, const SearchResult& found) {
  const std::string question = "How many GPUs at least?";
  std::string why;
  for (const Evaluated& e : found.too_large)
    if (!plan.minimum_gpus || e.gpus() < *plan.minimum_gpus)
      why = fmt::format("on {} GPUs the leanest way ({}) needs {}; its largest term is {}", e.gpus(), e.candidate.text(),
                        to_text(e.result.memory.device_peak), largest_term(e.result.memory));
  if (why.empty()) why = plan.minimum_gpus ? "it is the smallest number that the plan may use" : "no candidate could run";
  if (!plan.minimum_gpus) return {question, "nothing that the plan may choose fits", why};
  return {question, fmt::format("{}", *plan.minimum_gpus), why};
}

Answer fastest(const Plan& plan, const SearchResult& found) {
  const Evaluated& best = plan.time->evaluated;
  const Evaluated* second = nullptr;  // the fastest with another strategy on as many GPUs
  for (const Evaluated& e : found.fitting)
    if (e.gpus() == best.gpus() && e.candidate.strategy != best.candidate.strategy && (second == nullptr || e.time() < second->time()))
      second = &e;
  std::string why = "bound by " + best.result.step.bound_by;
  if (second != nullptr)
    why += fmt::format("; the next strategy, {}, takes {} longer", second->candidate.text(), percent(second->time() / best.time() - 1));
  return {"Which way is the fastest?",
          fmt::format("{} on {} GPUs: {} a step", best.candidate.text(), grouped(best.gpus()), to_text(best.time())), why};
}

std::string money(const Economics& e) {
  return e.cost ? fmt::format(", ${}", grouped(static_cast<std::int64_t>(*e.cost + 0.5))) : std::string();
}

Answer how_long(const Plan& plan, const PlanEntry& entry, const std::string& question) {
  const Economics& e = entry.economics;
  return {question,
          fmt::format("{:.{}f} days on {} GPUs, {} GPU-hours{} ({})", e.wall.base() / 86400, e.wall.base() < 864000 ? 2 : 1,
                      grouped(entry.evaluated.gpus()), grouped(static_cast<std::int64_t>(e.gpu_hours + 0.5)), money(e),
                      entry.evaluated.candidate.text()),
          fmt::format("{:.3g} tokens in {} steps; goodput {} with a checkpoint of {} every {} and a failure every {}", plan.request.tokens,
                      grouped(static_cast<std::int64_t>(e.steps + 0.5)), percent(e.goodput), to_text(e.checkpoint), to_text(e.interval),
                      to_text(plan.request.node_mtbf / static_cast<double>(entry.evaluated.candidate.nodes)))};
}

Answer largest(const Scenario& base, const Plan& plan) {
  const std::string question = "Which micro-batch fits in the scenario as written?";
  if (!plan.largest_micro_batch) return {question, "none", "one sequence does not fit: " + cheapest_rescue(base)};
  const std::int64_t next = *plan.largest_micro_batch + 1;
  const auto beyond = what_if(base, {fmt::format("training.micro_batch_size={}", next)});
  return {question,
          fmt::format("{} sequences ({} tokens) a rank", grouped(*plan.largest_micro_batch),
                      grouped(*plan.largest_micro_batch * base.training.sequence_length)),
          beyond ? fmt::format("{} need {} of {}; the largest term is {}", grouped(next), to_text(beyond->memory.device_peak),
                               to_text(beyond->memory.capacity), largest_term(beyond->memory))
                 : "more cannot be simulated"};
}

std::string nic_bandwidth(ByteRate rate) { return fmt::format("cluster.nic_bandwidth={:.0f} B/s", rate.base()); }

/// The least NIC bandwidth at which communication is hidden, to five percent; nothing if 64 times today's does not hide it.
std::optional<ByteRate> hiding_bandwidth(const Scenario& job) {
  const ByteRate today = job.cluster.profile.network.nic_bandwidth;
  const auto hidden = [&](double factor) {
    const auto result = what_if(job, {nic_bandwidth(today * factor)});
    return result && result->step.exposed_communication <= result->step.time * hidden_share;
  };
  double low = 1, high = 64;
  if (!hidden(high)) return std::nullopt;
  while (high / low > 1.05) {
    const double middle = std::sqrt(low * high);
    (hidden(middle) ? high : low) = middle;
  }
  return today * high;
}

Answer network(const Scenario& base, const Candidate& candidate) {
  const std::string question = "Is the network the bottleneck of the fastest way?";
  const auto job = scenario_of(base, candidate);
  const SimulationResult now = simulate_scenario(*job);
  const double exposed = now.step.exposed_communication / now.step.time;
  const std::string share = fmt::format("{} of the step is exposed communication", percent(exposed));
  if (exposed <= hidden_share) return {question, "no", share + "; bound by " + now.step.bound_by};
  if (candidate.nodes == 1) return {question, "no: it runs inside one node", share + ", over NVLink"};
  const auto needed = hiding_bandwidth(*job);
  const std::string move = needed ? fmt::format("to hide all of it a NIC would need {:.0f} Gbit/s (now {:.0f})", needed->base() * 8e-9,
                                                job->cluster.profile.network.nic_bandwidth.base() * 8e-9)
                                  : "no NIC bandwidth hides all of it: what is left stands inside the node or cannot overlap";
  return {question, exposed > 0.1 ? "yes" : "a little", share + "; " + move};
}

Answer what_moves(const Scenario& base, const Candidate& candidate) {
  const auto job = scenario_of(base, candidate);
  const SimulationResult now = simulate_scenario(*job);
  const std::string launch =
      fmt::format("cluster.kernel_launch={} ns", static_cast<std::int64_t>(job->cluster.profile.gpu.kernel_launch.base() * 0.5e9));
  std::vector<Change> changes{{"compiling the model", {"training.compile=true"}}, {"a host twice as fast", {launch}}};
  if (candidate.nodes > 1) changes.push_back({"NICs twice as fast", {nic_bandwidth(job->cluster.profile.network.nic_bandwidth * 2.0)}});
  if (candidate.checkpointing != "none")
    changes.push_back({"no activation checkpointing (if it fitted)", {"training.activation_checkpointing=none"}});
  std::string list, best = "nothing tried";
  double most = 0.005;
  for (const Change& change : changes) {
    const auto result = what_if(*job, change.assignments);
    if (!result) continue;
    const double saved = 1 - result->step.time / now.step.time;
    list += fmt::format("{}{}: {}", list.empty() ? "" : "; ", change.text, saved > 0.0005 ? "-" + percent(saved) : "no change");
    if (saved <= most) continue;
    most = saved;
    best = change.text;
  }
  return {"What would move the step time of the fastest way?", best, list + "; bound by " + now.step.bound_by};
}

Answer option_values(const Scenario& base) {
  const TunedOptions tuned = tune_options(base);
  const std::string question = "Which bucket, prefetch and sharding values are the fastest in the scenario as written?";
  if (tuned.tried.empty()) return {question, "there is nothing to choose", base.strategy.name + " has no such options"};
  std::string why;
  for (const TriedOption& option : tuned.tried)
    why += fmt::format("{}{} of {}: {}", why.empty() ? "" : "; ", option.name, fmt::join(option.values, ", "),
                       option.best.empty() ? "no gain" : fmt::format("{} saves {}", option.best, percent(option.saved)));
  const auto assignments = tuned.assignments();
  if (assignments.empty()) return {question, "as they are", why};
  return {question,
          fmt::format("{}: {} a step in place of {} (-{})", fmt::join(assignments, ", "), to_text(tuned.after), to_text(tuned.before),
                      percent(tuned.saved())),
          why};
}

}  // namespace

std::vector<Answer> answers(const Scenario& base, const Plan& plan, const SearchResult& found) {
  const SimulationResult now = simulate_scenario(base);
  std::vector<Answer> out{does_it_fit(base, now), fewest_gpus(plan, found), largest(base, plan)};
  out.push_back(option_values(base));
  if (!plan.time) return out;
  Candidate best = plan.time->evaluated.candidate;
  out.push_back(fastest(plan, found));
  out.push_back(how_long(plan, *plan.time, "How long does training take, the fastest way?"));
  out.push_back(how_long(plan, *plan.cost, "How much does training cost, the cheapest way?"));
  best.accumulation = std::min(best.accumulation, exact_micro_batches);  // shares of a step do not need all of its micro-batches
  out.push_back(network(base, best));
  out.push_back(what_moves(base, best));
  return out;
}

}  // namespace shardsim
