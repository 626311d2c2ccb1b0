// SPDX-License-Identifier: Apache-2.0
#include "studies/compare/what_if.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "studies/compare/variant.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

constexpr double worth_answering = 0.95;  // of the peak: a change that leaves more is no answer to a job that fits

std::string twice_the_nodes(const Scenario& base) { return fmt::format("cluster.nodes={}", base.cluster.nodes * 2); }

/// What a token costs on one GPU, in seconds and in bytes sent.
double time_of_token(const SimulationResult& r) { return 1 / r.step.tokens_per_second_per_gpu; }
double bytes_of_token(const SimulationResult& r) {
  return static_cast<double>(r.traffic.total.value()) / (r.step.tokens_per_second_per_gpu * r.step.time.base());
}

MemoryChange compare(const Change& change, const SimulationResult& now, const SimulationResult& then) {
  const double before = bytes_of_token(now), after = bytes_of_token(then);
  return {.text = change.text,
          .assignments = change.assignments,
          .device_peak = then.memory.device_peak,
          .fits = then.memory.fits,
          .time = time_of_token(then) / time_of_token(now) - 1,
          .traffic = before > 0 ? after / before - 1 : 0};
}

std::vector<MemoryTerm> terms_of(const SimulationResult& now, const std::optional<SimulationResult>& on_twice) {
  std::vector<MemoryTerm> terms;
  for (std::size_t i = 0; i < category_count; ++i) {
    MemoryTerm term{.category = static_cast<Category>(i), .bytes = now.memory.at_peak[i], .on_twice_the_ranks = {}};
    if (on_twice) term.on_twice_the_ranks = on_twice->memory.at_peak[i];
    if (term.bytes > Bytes{}) terms.push_back(term);
  }
  std::stable_sort(terms.begin(), terms.end(), [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes > b.bytes; });
  return terms;
}

}  // namespace

std::optional<SimulationResult> what_if(const Scenario& base, const std::vector<std::string>& assignments) {
  const auto scenario = vary(base, assignments);
  return scenario ? std::optional(simulate_scenario(*scenario)) : std::nullopt;
}

std::vector<Change> memory_changes(const Scenario& base) {
  const Training& training = base.training;
  std::vector<Change> changes;
  const auto offer = [&](bool sensible, std::string text, std::vector<std::string> assignments) {
    if (sensible) changes.push_back({std::move(text), std::move(assignments)});
  };
  const std::int64_t batch = training.micro_batch_size, steps = training.gradient_accumulation_steps;
  offer(!training.allocator.expandable_segments, "expandable segments", {"training.allocator={expandable_segments: true}"});
  offer(batch > 1, "micro-batch 1, more of them",
        {"training.micro_batch_size=1", fmt::format("training.gradient_accumulation_steps={}", steps * batch)});
  offer(training.attention == AttentionKind::plain, "flash attention", {"training.attention=flash"});
  offer(training.loss.kind == Loss::Kind::cross_entropy, "a loss in 8 chunks", {"training.loss={chunked: 8}"});
  offer(training.checkpointing.kind == Checkpointing::none, "selective activation checkpointing",
        {"training.activation_checkpointing=selective_ops"});
  offer(training.checkpointing.kind != Checkpointing::full || training.checkpointing.every > 1, "full activation checkpointing",
        {"training.activation_checkpointing=full"});
  for (const StrategyInfo& info : strategies())
    if (info.facts.stage == 3 && info.facts.superseded_by.empty())
      offer(base.strategy.name != info.name, info.name, choose_strategy(base, info.name));
  offer(true, "twice the nodes", {twice_the_nodes(base)});
  const OffloadUnit offload = facts_of(base.strategy.name).offload;
  offer(offload == OffloadUnit::optimizer && training.offload.optimizer == OffloadTarget::none, "CPU offload of the optimizer",
        {"training.offload={optimizer: cpu}"});
  offer(offload == OffloadUnit::parameters_and_optimizer && training.offload.parameters == OffloadTarget::none, "CPU offload",
        {"training.offload={parameters: cpu, optimizer: cpu}"});
  return changes;
}

MemoryExplanation explain_memory(const Scenario& base, const SimulationResult& now) {
  MemoryExplanation out;
  out.terms = terms_of(now, what_if(base, {twice_the_nodes(base)}));
  const std::vector<Change> changes = memory_changes(base);
  out.tried = std::ssize(changes);
  for (const Change& change : changes)
    if (const auto then = what_if(base, change.assignments); then && then->memory.device_peak < now.memory.device_peak)
      out.changes.push_back(compare(change, now, *then));
  std::stable_sort(out.changes.begin(), out.changes.end(), [](const MemoryChange& a, const MemoryChange& b) { return a.time < b.time; });
  const double enough = worth_answering * static_cast<double>(now.memory.device_peak.value());
  const auto answers = [&](const MemoryChange& c) {
    return now.memory.fits ? static_cast<double>(c.device_peak.value()) <= enough : c.fits;
  };
  const auto found = std::find_if(out.changes.begin(), out.changes.end(), answers);
  if (found != out.changes.end()) out.cheapest = static_cast<std::size_t>(found - out.changes.begin());
  return out;
}

}  // namespace shardsim
