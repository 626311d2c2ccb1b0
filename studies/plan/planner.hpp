// SPDX-License-Identifier: Apache-2.0
// A plan: the search's results, what they cost, and answers in words.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/engine/assumption.hpp"
#include "studies/plan/goodput.hpp"
#include "studies/plan/search.hpp"

namespace shardsim {

/// What training to the token budget takes with one candidate.
struct Economics {
  double steps = 0;
  Seconds checkpoint, interval;  ///< time of one checkpoint; useful work between two
  double goodput = 1;
  Seconds wall;  ///< with checkpoints, failures and lost work
  double gpu_hours = 0;
  std::optional<double> cost;  ///< US dollars; nothing without a price

  /// Failures come so close that hardly any of the time becomes training: times and costs are beyond saying.
  [[nodiscard]] bool hopeless() const { return goodput < 1e-6; }
};

struct PlanEntry {
  Evaluated evaluated;
  Economics economics;
  std::vector<std::string> set;     ///< what --set takes to make it of the scenario
  std::vector<std::string> config;  ///< the same in the words of the tool that runs it
  std::string config_of;            ///< whose words they are

  /// "shardsim simulate job.yaml --set strategy.replicate=4 ...".
  [[nodiscard]] std::string command(const std::string& scenario) const;
};

struct Answer {
  std::string question, answer, why;
};

/// One point of a scaling study: the scenario's micro-batch and accumulation on so many GPUs.
struct ScalingPoint {
  std::int64_t nodes = 1, gpus = 1;
  SimulationResult result;  ///< without its schedule
  double efficiency = 1;    ///< tokens/s/GPU, against the first point that fits (against the first if none does)
};

struct Scaling {
  std::vector<ScalingPoint> points;
  std::optional<std::size_t> cliff;   ///< the point before which most efficiency is lost
  std::string why;                    ///< what limits beyond the cliff
  std::string to_hide;                ///< what would hide all communication on the most GPUs
  std::vector<std::string> left_out;  ///< numbers of GPUs that the strategy cannot run on, with the reason
};

struct Plan {
  std::string scenario;
  PlanRequest request;
  std::optional<PlanEntry> time, cost, gpus;
  std::vector<PlanEntry> pareto;      ///< by GPUs
  std::vector<PlanEntry> elsewhere;   ///< the fastest of each other library, on as many GPUs
  std::optional<PlanEntry> fragile;   ///< faster than all of these, but with less memory free than is asked for
  std::optional<PlanEntry> deadline;  ///< the fewest GPUs that end within request.days
  std::optional<std::int64_t> minimum_gpus, largest_micro_batch;
  std::optional<std::int64_t> gpus_beyond;  ///< nothing fits on those allowed: so many GPUs would hold one sequence each
  std::vector<std::string> left_out;        ///< numbers of GPUs without a candidate, with the reason
  std::int64_t evaluated = 0, pruned = 0, refused = 0;
  std::vector<Answer> answers;
  std::vector<std::string> warnings;  ///< of the scenario as written, and of the fastest way
  Assumptions assumed;                ///< of the fastest way
  std::optional<Scaling> scaling;

  /// Something fits, and where days are given, ends within them.
  [[nodiscard]] bool is_yes() const { return time.has_value() && (!request.days || deadline.has_value()); }
};

[[nodiscard]] Economics economics(const Scenario& base, const PlanRequest& request, const Evaluated& evaluated);

/// The largest micro-batch with which the scenario as written fits with `headroom` to spare; nothing if one sequence does not.
[[nodiscard]] std::optional<std::int64_t> largest_micro_batch(const Scenario& base, double headroom = 0);

/// The scenario on 1, 2, 4 ... `most` GPUs, from `least`: whole nodes beyond the first. No number of GPUs in that range is an InputError.
[[nodiscard]] Scaling scaling_study(const Scenario& base, std::int64_t least, std::int64_t most);

/// Bounds and simulation of candidates of `base`, which must outlive it.
[[nodiscard]] SearchModel search_model(const Scenario& base, double headroom);

/// The fewest whole nodes on which the leanest way that the request allows fits, if `fitting_gpus` do and the node counts of the request
/// leave a gap below; the global batch is not asked for (planner_minimum.cpp).
[[nodiscard]] std::int64_t refined_minimum(const Scenario& base, const PlanRequest& request, std::int64_t fitting_gpus);

/// Nothing fits on the nodes of the request: how many GPUs would do. Nothing if `most_gpus_beyond` do not.
[[nodiscard]] std::optional<std::int64_t> minimum_beyond(const Scenario& base, const PlanRequest& request);

/// What limits the communication and the time of one way to run the job, and what would move it (planner_limits.cpp).
[[nodiscard]] Answer network_answer(const Scenario& job);
[[nodiscard]] Answer mover_answer(const Scenario& job, double headroom = 0);
/// "a NIC would need 680 Gbit/s (now 100)": the bandwidth at which at most 1 % of the step is exposed communication.
[[nodiscard]] std::string bandwidth_to_hide(const Scenario& job);

/// Answers in words, each with the limit that binds and what would move it (planner_answers.cpp).
[[nodiscard]] std::vector<Answer> answers(const Scenario& base, const Plan& plan, const SearchResult& found);

/// Called from any thread: how many candidates were settled since the last call, of how many.
using SearchProgress = std::function<void(std::size_t settled, std::size_t total)>;

[[nodiscard]] Plan make_plan(const Scenario& base, const SearchProgress& progress = {});

}  // namespace shardsim
