// SPDX-License-Identifier: Apache-2.0
// A plan: the search's results, what they cost, and answers in words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/planner_goodput.hpp"
#include "cli/planner_search.hpp"

namespace shardsim {

/// What training to the token budget takes with one candidate.
struct Economics {
  double steps = 0;
  Seconds checkpoint, interval;  ///< time of one checkpoint; useful work between two
  double goodput = 1;
  Seconds wall;  ///< with checkpoints, failures and lost work
  double gpu_hours = 0;
  std::optional<double> cost;  ///< US dollars; nothing without a price
};

struct PlanEntry {
  Evaluated evaluated;
  Economics economics;
};

struct Answer {
  std::string question, answer, why;
};

/// One point of a scaling study: the scenario's micro-batch and accumulation on so many GPUs.
struct ScalingPoint {
  std::int64_t nodes = 1, gpus = 1;
  SimulationResult result;  ///< without its schedule
  double efficiency = 1;    ///< tokens/s/GPU, against the first point
};

struct Scaling {
  std::vector<ScalingPoint> points;
  std::optional<std::size_t> cliff;   ///< the point before which most efficiency is lost
  std::string why;                    ///< what limits beyond the cliff
  std::vector<std::string> left_out;  ///< numbers of GPUs that the strategy cannot run on, with the reason
};

struct Plan {
  std::string scenario;
  PlanRequest request;
  std::optional<PlanEntry> time, cost, gpus;
  std::vector<PlanEntry> pareto;  ///< by GPUs
  std::optional<std::int64_t> minimum_gpus, largest_micro_batch;
  std::int64_t evaluated = 0, pruned = 0, refused = 0;
  std::vector<Answer> answers;
  std::optional<Scaling> scaling;
};

[[nodiscard]] Economics economics(const Scenario& base, const PlanRequest& request, const Evaluated& evaluated);

/// The largest micro-batch with which the scenario as written fits; nothing if one sequence does not.
[[nodiscard]] std::optional<std::int64_t> largest_micro_batch(const Scenario& base);

/// The scenario on 1, 2, 4 ... `most` GPUs, from `least`: whole nodes beyond the first.
[[nodiscard]] Scaling scaling_study(const Scenario& base, std::int64_t least, std::int64_t most);

/// Answers in words, each with the limit that binds and what would move it (planner_answers.cpp).
[[nodiscard]] std::vector<Answer> answers(const Scenario& base, const Plan& plan, const SearchResult& found);

[[nodiscard]] Plan make_plan(const Scenario& base);

}  // namespace shardsim
