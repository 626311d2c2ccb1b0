// SPDX-License-Identifier: Apache-2.0
#include "studies/compare/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "sim/base/parallel.hpp"
#include "studies/compare/variant.hpp"
#include "studies/compare/what_if.hpp"
#include "studies/simulate/assumptions.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

constexpr double noticeable = 0.005;  // share of the step time that counts as a difference

struct Point {
  Seconds time;
  bool fits = false;
};

/// Step times of strategies over micro-batches, each simulated once.
class Curves {
 public:
  Curves(const Scenario& base, std::vector<std::string> names) : base_(base), names_(std::move(names)) {}

  void prepare(const std::vector<std::int64_t>& micro_batches) {
    std::vector<Key> keys;
    for (std::size_t s = 0; s < names_.size(); ++s)
      for (const std::int64_t m : micro_batches) keys.emplace_back(s, m);
    std::vector<std::optional<Point>> points(keys.size());
    parallel_for(keys.size(), available_cores(), [&](std::size_t i) { points[i] = simulated(keys[i]); });
    for (std::size_t i = 0; i < keys.size(); ++i) known_.emplace(keys[i], points[i]);
  }

  /// Nothing where the job cannot run with this micro-batch.
  std::optional<Point> at(std::size_t strategy, std::int64_t micro_batch) {
    const Key key{strategy, micro_batch};
    const auto found = known_.find(key);
    return found != known_.end() ? found->second : known_.emplace(key, simulated(key)).first->second;
  }

  /// -1 if `a` is noticeably faster than `b`, 1 if slower, 0 if neither or unknown.
  int order(std::size_t a, std::size_t b, std::int64_t micro_batch) {
    const auto first = at(a, micro_batch), second = at(b, micro_batch);
    if (!first || !second) return 0;
    const double ratio = first->time / second->time;
    return ratio < 1 - noticeable ? -1 : ratio > 1 + noticeable ? 1 : 0;
  }

 private:
  using Key = std::pair<std::size_t, std::int64_t>;

  [[nodiscard]] std::optional<Point> simulated(const Key& key) const {
    auto assignments = choose_strategy(base_, names_[key.first]);
    assignments.push_back(fmt::format("training.micro_batch_size={}", key.second));
    const auto scenario = vary(base_, assignments);
    if (!scenario) return std::nullopt;
    const SimulationResult result = simulate_scenario(*scenario);
    return Point{result.step.time, result.memory.fits};
  }

  const Scenario& base_;
  std::vector<std::string> names_;
  std::map<Key, std::optional<Point>> known_;
};

/// The first micro-batch in (low, high] where the order is no longer that of `low`.
std::int64_t turning_point(Curves& curves, std::size_t a, std::size_t b, std::int64_t low, std::int64_t high) {
  const int before = curves.order(a, b, low);
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (curves.order(a, b, middle) == before ? low : high) = middle;
  }
  return high;
}

void add_crossovers(std::vector<Crossover>& out, Curves& curves, const Scenario& base, const std::vector<std::string>& names, std::size_t a,
                    std::size_t b, const std::vector<std::int64_t>& micro_batches) {
  std::int64_t last = 0;  // the last micro-batch at which one of the two was faster
  for (const std::int64_t m : micro_batches) {
    const int now = curves.order(a, b, m);
    if (now == 0) continue;
    if (last != 0 && now != curves.order(a, b, last)) {
      const int before = curves.order(a, b, last);
      const std::int64_t turn = turning_point(curves, a, b, last, m);
      const auto first = curves.at(a, turn), second = curves.at(b, turn);
      out.push_back({before < 0 ? names[a] : names[b], before < 0 ? names[b] : names[a], turn, turn * base.training.sequence_length,
                     first && second && first->fits && second->fits});
    }
    last = m;
  }
}

std::vector<Crossover> find_crossovers(const Scenario& base, const std::vector<std::string>& names, std::int64_t largest) {
  std::vector<std::int64_t> micro_batches;
  for (std::int64_t m = 1; m <= largest; m *= 2) micro_batches.push_back(m);
  Curves curves(base, names);
  curves.prepare(micro_batches);
  std::vector<Crossover> out;
  for (std::size_t a = 0; a < names.size(); ++a)
    for (std::size_t b = a + 1; b < names.size(); ++b) add_crossovers(out, curves, base, names, a, b, micro_batches);
  std::stable_sort(out.begin(), out.end(), [](const Crossover& x, const Crossover& y) { return x.micro_batch < y.micro_batch; });
  return out;
}

std::optional<Rescue> find_rescue(const Scenario& base, const std::vector<SimulationResult>& results) {
  if (results.empty()) return std::nullopt;
  const bool some_fit = std::any_of(results.begin(), results.end(), [](const SimulationResult& r) { return r.memory.fits; });
  const SimulationResult* wanted = &results.front();
  if (!some_fit)
    wanted = &*std::min_element(results.begin(), results.end(), [](const SimulationResult& a, const SimulationResult& b) {
      return a.memory.device_peak < b.memory.device_peak;
    });
  if (wanted->memory.fits) return std::nullopt;
  const auto scenario = vary(base, choose_strategy(base, wanted->schedule->strategy));
  if (!scenario) return std::nullopt;
  const MemoryExplanation explanation = explain_memory(*scenario, *wanted);
  if (!explanation.cheapest) return std::nullopt;
  return Rescue{wanted->schedule->strategy, explanation.changes[*explanation.cheapest]};
}

void add_assumptions(const Scenario& base, Comparison& comparison) {
  if (comparison.results.empty()) return;
  const auto own = std::find_if(comparison.results.begin(), comparison.results.end(),
                                [&](const SimulationResult& r) { return r.schedule->strategy == base.strategy.name; });
  const SimulationResult& result = own == comparison.results.end() ? comparison.results.front() : *own;
  const auto scenario = vary(base, choose_strategy(base, result.schedule->strategy));
  if (scenario) comparison.assumed = assumptions_of(*scenario, result);
}

}  // namespace

Comparison compare_strategies(const Scenario& base, const std::vector<std::string>& names, std::int64_t largest_micro_batch) {
  std::vector<std::optional<SimulationResult>> results(names.size());
  std::vector<std::string> why(names.size());
  parallel_for(names.size(), available_cores(), [&](std::size_t i) {
    const auto scenario = vary(base, choose_strategy(base, names[i]));
    if (scenario)
      results[i] = simulate_scenario(*scenario);
    else
      why[i] = first_message(scenario.error());
  });
  Comparison comparison;
  std::vector<std::string> ran;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!results[i]) {
      comparison.not_run.push_back({names[i], why[i]});
      continue;
    }
    ran.push_back(names[i]);
    comparison.results.push_back(std::move(*results[i]));
  }
  std::stable_sort(comparison.results.begin(), comparison.results.end(),
                   [](const SimulationResult& a, const SimulationResult& b) { return a.step.time < b.step.time; });
  comparison.crossovers = find_crossovers(base, ran, largest_micro_batch);
  comparison.rescue = find_rescue(base, comparison.results);
  add_assumptions(base, comparison);
  return comparison;
}

std::vector<std::string> Comparison::warnings() const {
  std::vector<std::pair<std::string, std::string>> by_text;  // warning, strategies
  for (const SimulationResult& result : results)
    for (const std::string& warning : result.warnings) {
      const auto same = std::find_if(by_text.begin(), by_text.end(), [&](const auto& known) { return known.first == warning; });
      if (same == by_text.end())
        by_text.emplace_back(warning, result.schedule->strategy);
      else
        same->second += ", " + result.schedule->strategy;
    }
  std::vector<std::string> out;
  for (const auto& [warning, names] : by_text) out.push_back(names + ": " + warning);
  return out;
}

}  // namespace shardsim
