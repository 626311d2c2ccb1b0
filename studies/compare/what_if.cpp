// SPDX-License-Identifier: Apache-2.0
#include "studies/compare/what_if.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "studies/compare/config_lines.hpp"
#include "studies/compare/variant.hpp"
#include "studies/simulate/simulation_job.hpp"
#include "studies/sweep/sweep_plan.hpp"

namespace shardsim {
namespace {

constexpr double worth_answering = 0.95;  // of the peak: a change that leaves more is no answer to a job that fits

/// What a library's own maintainers name where memory runs short: a value of one of its options.
struct OptionRemedy {
  std::string_view option, value, text;
};
constexpr std::array<OptionRemedy, 20> option_remedies{{
    {"gradient_as_bucket_view", "true", "gradients as views of their buckets"},
    {"limit_all_gathers", "true", "the limiter of all-gathers"},
    {"reshard_after_forward", "true", "resharding after forward"},
    {"reshard_after_backward", "true", "resharding after backward"},
    {"sharding_strategy", "FULL_SHARD", "sharding among all ranks"},
    {"replicate", "1", "one replica, sharded among all ranks"},
    {"wrap", "torchtitan", "embedding and head wrapped by themselves"},
    {"requires_gradient_sync", "true", "reducing gradients in every micro-batch"},
    {"backward_prefetch", "BACKWARD_POST", "prefetching after a unit's backward"},
    {"backward_prefetch", "1", "one group ahead in backward"},
    {"forward_prefetch", "false", "no prefetch in forward"},
    {"forward_prefetch", "0", "no prefetch in forward"},
    {"overlap_comm", "false", "reducing beside nothing"},
    {"reduce_bucket_size", "50000000", "reduce buckets of 5e7 elements"},
    {"stage3_prefetch_bucket_size", "5000000", "prefetch buckets of 5e6 elements"},
    {"stage3_max_live_parameters", "100000000", "at most 1e8 gathered elements"},
    {"stage3_param_persistence_threshold", "0", "no parameters kept gathered"},
    {"sub_group_size", "100000000", "optimizer steps of 1e8 elements"},
    {"static_graph", "false", "no static graph"},
    {"bucket_cap_mb", "25", "buckets of 25 MiB"},
}};

/// The value of an option of the scenario's strategy, as it is written there or as the library has it.
std::string option_value(const Scenario& base, const OptionSpec& spec) {
  const ConfigNode* block = base.root.find("strategy");
  const ConfigNode* written = block == nullptr ? nullptr : block->find(spec.name);
  return written == nullptr ? spec.fallback : flow_text(*written);
}

std::vector<Change> option_changes(const Scenario& base) {
  std::vector<Change> changes;
  const auto& specs = find_strategy(base.strategy.name)->options;
  for (const OptionRemedy& remedy : option_remedies) {
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const OptionSpec& s) { return s.name == remedy.option; });
    if (spec == specs.end() || option_value(base, *spec) == remedy.value) continue;
    const bool is_number = remedy.value.find_first_not_of("0123456789") == std::string_view::npos;
    const bool takes_number = spec->kind == OptionKind::integer || spec->kind == OptionKind::number || spec->kind == OptionKind::size;
    if (is_number != takes_number && spec->kind != OptionKind::word) continue;
    if (spec->kind == OptionKind::word && !spec->words.empty() &&
        std::find(spec->words.begin(), spec->words.end(), remedy.value) == spec->words.end())
      continue;
    changes.push_back({std::string(remedy.text), {fmt::format("strategy.{}={}", remedy.option, remedy.value)}});
  }
  return changes;
}

/// The scenario's optimizer with its other words kept.
std::string fused_optimizer(const Scenario& base) {
  const ConfigNode* block = base.root.find("training");
  const ConfigNode* own = block == nullptr ? nullptr : block->find("optimizer");
  const bool is_map = own != nullptr && own->kind == ConfigNode::Kind::map;
  return is_map ? "training.optimizer.implementation=fused" : "training.optimizer={name: adamw, implementation: fused}";
}

std::string twice_the_nodes(const Scenario& base) { return fmt::format("cluster.nodes={}", base.cluster.nodes * 2); }

/// What a token costs on one GPU, in seconds and in bytes sent.
double time_of_token(const SimulationResult& r) { return 1 / r.step.tokens_per_second_per_gpu; }
double bytes_of_token(const SimulationResult& r) {
  return static_cast<double>(r.traffic.total.value()) / (r.step.tokens_per_second_per_gpu * r.step.time.base());
}

MemoryChange compare(const Scenario& base, const Change& change, const SimulationResult& now, const SimulationResult& then) {
  const double before = bytes_of_token(now), after = bytes_of_token(then);
  return {.text = change.text,
          .assignments = change.assignments,
          .config = config_lines(base, change.assignments),
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
  for (Change& change : option_changes(base)) changes.push_back(std::move(change));
  const bool adam = training.optimizer.kind == OptimizerKind::adamw;
  offer(adam && training.optimizer.implementation == Optimizer::Implementation::foreach, "a fused optimizer", {fused_optimizer(base)});
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
      out.changes.push_back(compare(base, change, now, *then));
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
