// SPDX-License-Identifier: Apache-2.0
#include "studies/plan/candidate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "sim/base/units_text.hpp"
#include "studies/compare/variant.hpp"
#include "studies/plan/feasible.hpp"
#include "studies/simulate/simulation_job.hpp"
#include "studies/sweep/sweep_plan.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t most_micro_batches = 128;  // sequences: beyond, activations fill any GPU long before

/// Ways to run one strategy: with its defaults, and as its entry in the table says.
OptionSets option_sets(const std::string& strategy, std::int64_t nodes, std::int64_t gpus_per_node, bool hybrid) {
  OptionSets sets{{}};
  const StrategyFacts& facts = facts_of(strategy);
  if (!facts.variants) return sets;
  for (auto& set : facts.variants(hybrid ? nodes : 1, gpus_per_node)) sets.push_back(std::move(set));
  return sets;
}

/// The options that the scenario gives its own strategy, as assignments: "reshard_after_forward=false".
std::vector<std::string> own_options(const Scenario& base) {
  std::vector<std::string> out;
  const ConfigNode* block = base.root.find("strategy");
  if (block == nullptr) return out;
  for (const Entry& entry : block->entries)
    if (base.strategy.options.given(entry.key)) out.push_back(entry.key + "=" + flow_text(entry.value));
  return out;
}

/// `chosen` on top of what the scenario gives.
std::vector<std::string> on_top(std::vector<std::string> given, const std::vector<std::string>& chosen) {
  const auto name_of_option = [](const std::string& assignment) { return assignment.substr(0, assignment.find('=')); };
  for (const std::string& option : chosen) {
    const auto same =
        std::find_if(given.begin(), given.end(), [&](const std::string& o) { return name_of_option(o) == name_of_option(option); });
    if (same == given.end())
      given.push_back(option);
    else
      *same = option;
  }
  return given;
}

struct ClusterShape {
  std::int64_t nodes, gpus_per_node;
};

std::vector<ClusterShape> machines(const Scenario& base, const PlanRequest& request) {
  std::vector<ClusterShape> all;
  const std::int64_t whole = base.cluster.gpus_per_node;
  if (request.parts_of_a_node)
    for (std::int64_t gpus = 1; gpus < whole; gpus *= 2) all.push_back({1, gpus});
  for (const std::int64_t nodes : request.nodes) all.push_back({nodes, whole});
  return all;
}

/// option_sets with what the scenario gives its own strategy; none where the strategy makes no sense on so few GPUs.
std::vector<std::vector<std::string>> ways_to_run(const Scenario& base, const std::vector<std::string>& own, const std::string& strategy,
                                                  ClusterShape machine, bool hybrid) {
  if (!makes_sense(strategy, base, machine.nodes * machine.gpus_per_node)) return {};
  auto sets = option_sets(strategy, machine.nodes, machine.gpus_per_node, hybrid);
  if (strategy != base.strategy.name) return sets;
  std::vector<std::vector<std::string>> out;
  for (const auto& options : sets)
    if (auto set = on_top(own, options); std::find(out.begin(), out.end(), set) == out.end()) out.push_back(std::move(set));
  return out;
}

/// Micro-batches that divide a rank's share of the global batch.
std::vector<std::int64_t> micro_batches(const PlanRequest& request, std::int64_t gpus) {
  std::vector<std::int64_t> out;
  if (request.global_batch % gpus != 0) return out;
  const std::int64_t share = request.global_batch / gpus;
  for (std::int64_t m = 1; m <= std::min(share, most_micro_batches); ++m) {
    const bool wanted = request.micro_batches.empty() || std::binary_search(request.micro_batches.begin(), request.micro_batches.end(), m);
    if (share % m == 0 && wanted && share / m <= std::numeric_limits<std::int32_t>::max()) out.push_back(m);
  }
  return out;
}

}  // namespace

std::string Candidate::text() const {
  std::string out = strategy;
  if (!options.empty()) out += fmt::format(" ({})", fmt::join(options, ", "));
  if (checkpointing != "none") out += fmt::format(", checkpointing {}", checkpointing);
  if (offload != "none") out += fmt::format(", offload {}", offload);
  return out + fmt::format(", micro-batch {} x {}", micro_batch, accumulation);
}

std::vector<Candidate> candidates(const Scenario& base, const PlanRequest& request) {
  std::vector<Candidate> all;
  const std::vector<std::string> own = own_options(base);
  for (const auto& [nodes, gpus_per_node] : machines(base, request))
    for (const std::string& strategy : request.strategies)
      for (const auto& options : ways_to_run(base, own, strategy, {nodes, gpus_per_node}, request.hybrid))
        for (const std::string& checkpointing : request.checkpointing)
          for (const std::string& offload : request.offload)
            for (const std::int64_t m : micro_batches(request, nodes * gpus_per_node))
              all.push_back(
                  {nodes, gpus_per_node, strategy, options, checkpointing, offload, m, request.global_batch / (nodes * gpus_per_node) / m});
  return all;
}

std::vector<std::string> left_out(const Scenario& base, const PlanRequest& request) {
  std::vector<std::string> uneven, unlisted, out;
  for (const auto& [nodes, gpus_per_node] : machines(base, request)) {
    const std::int64_t gpus = nodes * gpus_per_node;
    if (request.global_batch % gpus != 0)
      uneven.push_back(grouped(gpus));
    else if (micro_batches(request, gpus).empty())
      unlisted.push_back(grouped(gpus));
  }
  const std::string batch =
      fmt::format("{} {}", grouped(request.global_batch), request.global_batch == 1 ? "sequence does" : "sequences do");
  if (!uneven.empty()) out.push_back(fmt::format("{} not divide among {} GPUs", batch, fmt::join(uneven, ", ")));
  if (!unlisted.empty())
    out.push_back(fmt::format("none of plan.micro_batch_sizes divides a GPU's share of {} sequences on {} GPUs",
                              grouped(request.global_batch), fmt::join(unlisted, ", ")));
  return out;
}

std::vector<std::string> assignments_of(const Scenario& base, const Candidate& candidate) {
  const Training& now = base.training;
  std::vector<std::string> out = choose_strategy(base, candidate.strategy);
  const auto own = candidate.strategy == base.strategy.name ? own_options(base) : std::vector<std::string>{};
  for (const std::string& option : candidate.options)
    if (std::find(own.begin(), own.end(), option) == own.end()) out.push_back("strategy." + option);
  if (candidate.nodes != base.cluster.nodes) out.push_back(fmt::format("cluster.nodes={}", candidate.nodes));
  if (candidate.gpus_per_node != base.cluster.gpus_per_node)
    out.push_back(fmt::format("cluster.gpus_per_node={}", candidate.gpus_per_node));
  if (candidate.micro_batch != now.micro_batch_size) out.push_back(fmt::format("training.micro_batch_size={}", candidate.micro_batch));
  if (candidate.accumulation != now.gradient_accumulation_steps)
    out.push_back(fmt::format("training.gradient_accumulation_steps={}", candidate.accumulation));
  const auto unlike = [&](std::string_view key, const std::string& value) {
    const ConfigNode* block = base.root.find("training");
    const ConfigNode* written = block == nullptr ? nullptr : block->find(key);
    return value != (written == nullptr ? "none" : flow_text(*written));
  };
  if (unlike("activation_checkpointing", candidate.checkpointing))
    out.push_back("training.activation_checkpointing=" + candidate.checkpointing);
  if (unlike("offload", candidate.offload)) out.push_back("training.offload=" + candidate.offload);
  return out;
}

Result<Scenario> scenario_of(const Scenario& base, const Candidate& candidate) { return vary(base, assignments_of(base, candidate)); }

std::optional<SimulationResult> simulate_candidate(const Scenario& base, const Candidate& candidate) {
  const auto simulated = [&](std::int64_t accumulation) -> std::optional<SimulationResult> {
    Candidate shorter = candidate;
    shorter.accumulation = accumulation;
    const auto scenario = scenario_of(base, shorter);
    if (!scenario) return std::nullopt;
    SimulationResult result = simulate_scenario(*scenario);
    result.schedule = nullptr;  // thousands of them would fill the memory
    return result;
  };
  if (candidate.accumulation <= exact_micro_batches) return simulated(candidate.accumulation);
  const std::int64_t a = exact_micro_batches - 2, b = exact_micro_batches;
  const auto first = simulated(a), second = simulated(b);
  if (!first || !second) return std::nullopt;
  return extrapolated(*first, *second, a, b, candidate.accumulation);
}

SimulationResult extrapolated(const SimulationResult& first, const SimulationResult& second, std::int64_t a, std::int64_t b,
                              std::int64_t g) {
  SimulationResult result = second;
  const double steps = static_cast<double>(g - b) / static_cast<double>(b - a);
  const auto line = [&](auto StepTime::*field) { result.step.*field += (second.step.*field - first.step.*field) * steps; };
  for (auto field : {&StepTime::time, &StepTime::compute, &StepTime::communication, &StepTime::exposed_communication, &StepTime::host_bound,
                     &StepTime::optimizer})
    line(field);
  line(&StepTime::model_flops);
  line(&StepTime::hardware_flops);
  const double longer = result.step.time / second.step.time;
  const double tokens = static_cast<double>(g) / static_cast<double>(b);
  result.step.tokens_per_second *= tokens / longer;
  result.step.tokens_per_second_per_gpu *= tokens / longer;
  result.step.mfu *= result.step.model_flops / second.step.model_flops / longer;
  result.step.hfu *= result.step.hardware_flops / second.step.hardware_flops / longer;
  result.traffic.total += Bytes{(second.traffic.total - first.traffic.total).value() / (b - a) * (g - b)};
  return result;
}

}  // namespace shardsim
