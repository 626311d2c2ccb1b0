// SPDX-License-Identifier: Apache-2.0
#include "strategies/strategy.hpp"

#include <algorithm>
#include <stdexcept>

#include "strategies/shared/muon.hpp"
#include "strategies/strategy_table.hpp"
#include "strategies/textbook/textbook.hpp"

namespace shardsim {
namespace {

/// The table: one line a strategy, in the order in which `list strategies` shows them.
const std::vector<StrategyEntry>& table() {
  static const std::vector<StrategyEntry> entries = [] {
    return std::vector<StrategyEntry>{
        naive_dp_strategy(), ddp_strategy(),   zero_redundancy_strategy(), zero1_strategy(),    zero2_strategy(),   zero3_strategy(),
        mics_strategy(),     fsdp1_strategy(), fsdp2_strategy(),           megatron_strategy(), olmo_ddp_strategy()};
  }();
  return entries;
}

const StrategyEntry* find_entry(std::string_view name) {
  const auto found = std::find_if(table().begin(), table().end(), [&](const StrategyEntry& e) { return e.info.name == name; });
  return found == table().end() ? nullptr : &*found;
}

const StrategyEntry& entry_of(const Job& job) {
  const StrategyEntry* entry = find_entry(job.strategy.name);
  if (!entry) throw std::logic_error("unknown strategy " + job.strategy.name);
  return *entry;
}

}  // namespace

const std::vector<StrategyInfo>& strategies() {
  static const std::vector<StrategyInfo> infos = [] {
    std::vector<StrategyInfo> list;
    for (const StrategyEntry& e : table()) list.push_back(e.info);
    return list;
  }();
  return infos;
}

const StrategyInfo* find_strategy(std::string_view name) {
  const StrategyEntry* entry = find_entry(name);
  return entry ? &entry->info : nullptr;
}

const StrategyFacts& facts_of(std::string_view strategy) {
  const StrategyInfo* info = find_strategy(strategy);
  if (info == nullptr) throw std::logic_error("unknown strategy " + std::string(strategy));
  return info->facts;
}

DType reduction_dtype(const Job& job) {
  const StrategyEntry& entry = entry_of(job);
  if (entry.reduction_dtype && job.strategy.semantics == Semantics::framework) return entry.reduction_dtype(job);
  return job.training.precision.reduce.value_or(job.training.precision.gradients);
}

Problems check(const Job& job) {
  Problems problems;
  const StrategyEntry& entry = entry_of(job);
  const Options& options = job.strategy.options;
  const std::int64_t replicas = options.integer("replicate", 1);
  if (job.world_size % replicas != 0)
    problems.add(options.where("replicate"),
                 "replicate: " + std::to_string(replicas) + " does not divide the world of " + std::to_string(job.world_size) + " ranks");
  check_muon(job, problems);
  if (job.strategy.semantics == Semantics::framework) {
    if (!entry.make) problems.add({}, "strategy " + job.strategy.name + " has no framework semantics yet", {"use semantics: textbook"});
    if (entry.check && problems.empty()) entry.check(job, problems);
  }
  return problems;
}

Schedule emit(const Job& job) {
  const StrategyEntry& entry = entry_of(job);
  const bool framework = job.strategy.semantics == Semantics::framework;
  Program program(job);
  const std::unique_ptr<Hooks> hooks = framework ? entry.make(program) : make_textbook(program);
  run_training_loop(program, *hooks);
  Schedule schedule = std::move(program.build).take();
  schedule.strategy = job.strategy.name;
  schedule.semantics = framework ? "framework" : "textbook";
  schedule.library = framework ? with_version(entry.info.library, entry.info.releases, job.strategy.version)
                               : "the papers: ZeRO (arXiv 1910.02054), FSDP (arXiv 2304.11277)";
  if (framework && entry.differs_because) schedule.differs_because = entry.differs_because(job);
  if (const std::string muon = framework ? muon_differs(job) : ""; !muon.empty())
    schedule.differs_because += (schedule.differs_because.empty() ? "" : "; ") + muon;
  if (framework && entry.warnings) schedule.warnings = entry.warnings(job);
  if (const std::string outside = outside_range(job.strategy.name, entry.info.releases, job.strategy.version);
      framework && !outside.empty())
    schedule.warnings.push_back(outside);
  schedule.world_size = job.world_size;
  schedule.rank = job.rank;
  schedule.micro_batches = job.training.gradient_accumulation_steps;
  return schedule;
}

}  // namespace shardsim
