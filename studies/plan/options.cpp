// SPDX-License-Identifier: Apache-2.0
#include "studies/plan/options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "studies/compare/variant.hpp"
#include "studies/plan/candidate.hpp"
#include "studies/plan/feasible.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

constexpr double worth_telling = 0.001;  // of the step: less is as good as nothing

struct Choices {
  std::string name;
  std::vector<std::string> values;
};

/// Options that trade the time of communication for memory or for when it starts, in the order in which they are tried: what is sharded
/// among whom first, how it is cut last.
std::vector<Choices> choices(const Cluster& cluster) {
  std::vector<Choices> all{{"sharding_strategy", {"FULL_SHARD", "SHARD_GRAD_OP"}},
                           {"reshard_after_forward", {"true", "false"}},
                           {"overlap_comm", {"true", "false"}},
                           {"overlap_grad_reduce", {"true", "false"}},
                           {"overlap_param_gather", {"true", "false"}},
                           {"backward_prefetch", {"0", "1", "2", "BACKWARD_PRE", "BACKWARD_POST"}},
                           {"forward_prefetch", {"0", "1", "2", "true", "false"}},
                           {"limit_all_gathers", {"true", "false"}},
                           {"bucket_cap_mb", {"1", "5", "10", "25", "50", "100", "200", "400"}},
                           {"bucket_size", {"10000000", "40000000", "100000000", "400000000"}},
                           {"reduce_bucket_size", {"10000000", "50000000", "200000000", "500000000", "1000000000"}},
                           {"stage3_prefetch_bucket_size", {"0", "5000000", "50000000", "200000000", "500000000"}},
                           {"stage3_max_live_parameters", {"100000000", "1000000000", "3000000000"}},
                           {"stage3_param_persistence_threshold", {"0", "10000", "100000", "1000000"}}};
  if (cluster.nodes == 1) return all;
  // Sharded inside a node, replicated across nodes.
  all[0].values.emplace_back("HYBRID_SHARD");
  all[1].values.push_back(std::to_string(cluster.gpus_per_node));
  all.insert(all.begin(), {{"replicate", {"1", std::to_string(cluster.nodes)}},
                           {"zero_hpz_partition_size", {"1", std::to_string(cluster.gpus_per_node)}}});
  return all;
}

/// Shares of a step do not need all of its micro-batches.
std::vector<std::string> shortened(const Scenario& base) {
  const std::int64_t micro_batches = std::min<std::int64_t>(base.training.gradient_accumulation_steps, exact_micro_batches);
  return {fmt::format("training.gradient_accumulation_steps={}", micro_batches)};
}

std::optional<SimulationResult> simulated(const Scenario& base, std::vector<std::string> assignments, const std::string& last) {
  assignments.push_back(last);
  const auto scenario = vary(base, assignments);
  return scenario ? std::optional(simulate_scenario(*scenario)) : std::nullopt;
}

}  // namespace

std::vector<std::string> TunedOptions::assignments() const {
  std::vector<std::string> all;
  for (const TriedOption& option : tried)
    if (!option.best.empty()) all.push_back(fmt::format("strategy.{}={}", option.name, option.best));
  return all;
}

TunedOptions tune_options(const Scenario& base, double headroom) {
  const StrategyInfo& info = *find_strategy(base.strategy.name);
  const std::vector<std::string> alone = shortened(base);
  std::vector<std::string> assignments = alone;
  const SimulationResult now = simulate_scenario(value_or_throw(vary(base, assignments)));
  const bool roomy = fits_with(now.memory, headroom);
  // A scenario that fits at the edge may go on so; one that does not fit is no measure for the time of those that do.
  const auto fits = [&](const SimulationResult& result) {
    return fits_with(result.memory, headroom) ||
           (now.memory.fits && !roomy && result.memory.fits && result.memory.device_peak <= now.memory.device_peak);
  };
  TunedOptions tuned{.tried = {}, .before = now.step.time, .after = now.step.time, .fits_before = now.memory.fits};
  bool found = now.memory.fits;  // a way that fits, to be compared with
  for (const auto& [name, values] : choices(base.cluster)) {
    if (std::none_of(info.options.begin(), info.options.end(), [&](const OptionSpec& spec) { return spec.name == name; })) continue;
    TriedOption option{.name = name, .values = {}, .best = {}, .saved = 0};
    Seconds fastest = tuned.after;
    for (const std::string& value : values) {
      const std::string assignment = fmt::format("strategy.{}={}", name, value);
      const auto result = simulated(base, assignments, assignment);
      if (!result || !fits(*result)) continue;
      if (!now.memory.fits)  // what is named must do by itself
        if (const auto single = simulated(base, alone, assignment); !single || !fits(*single)) continue;
      option.values.push_back(value);
      if (found && result->step.time >= fastest - tuned.before * worth_telling) continue;
      found = true;
      fastest = result->step.time;
      option.best = value;
    }
    if (!option.best.empty()) assignments.push_back(fmt::format("strategy.{}={}", name, option.best));
    option.saved = (tuned.after - fastest) / tuned.before;
    tuned.after = fastest;
    if (!option.values.empty()) tuned.tried.push_back(std::move(option));
  }
  return tuned;
}

}  // namespace shardsim
