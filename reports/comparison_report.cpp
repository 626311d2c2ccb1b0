// SPDX-License-Identifier: Apache-2.0
#include "reports/comparison_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/assumed.hpp"
#include "reports/text.hpp"
#include "sim/base/units_text.hpp"
#include "studies/plan/feasible.hpp"
#include "studies/plan/words.hpp"
#include "studies/simulate/simulate_json.hpp"

namespace shardsim {

Json comparison_json(const Comparison& comparison) {
  Json json;
  json.add("schema", "shardsim.compare/1");
  Json::List results, crossovers, not_run;
  for (const SimulationResult& result : comparison.results) results.push_back(simulate_json(result));
  for (const Crossover& c : comparison.crossovers)
    crossovers.emplace_back(Json::Object{
        {"below", c.below}, {"from", c.from}, {"micro_batch_size", c.micro_batch}, {"tokens_per_gpu", c.tokens_per_gpu}, {"fits", c.fits}});
  for (const NotRun& n : comparison.not_run) not_run.emplace_back(Json::Object{{"strategy", n.strategy}, {"why", n.why}});
  json.add("results", std::move(results));
  json.add("crossovers", std::move(crossovers));
  json.add("not_run", std::move(not_run));
  json.add("assumed", assumed_json(comparison.assumed));
  if (comparison.rescue) {
    const MemoryChange& change = comparison.rescue->change;
    json.add("rescue", Json::Object{{"strategy", comparison.rescue->strategy},
                                    {"change", change.text},
                                    {"set", Json::List(change.assignments.begin(), change.assignments.end())},
                                    {"config", Json::List(change.config.begin(), change.config.end())},
                                    {"device_peak_bytes", change.device_peak.value()},
                                    {"time_relative", change.time}});
  }
  return json;
}

namespace {

/// A device nearly full is a promise that the next run may break.
std::string fits_text(const Memory& memory) {
  if (!memory.fits) return memory.device_peak <= memory.capacity ? "no (host)" : "no";
  return fits_with(memory, 0.05) ? "yes" : "fragile";
}

TextGrid ranking(const Comparison& comparison) {
  TextGrid grid{.header = {"Strategy", "Stack", "Step", "Exposed", "Peak", "Fits", "Sent", "Textbook", "tok/s/GPU"},
                .right = {false, false, true, true, true, false, true, true, true},
                .rows = {}};
  for (const SimulationResult& r : comparison.results)
    grid.rows.push_back({r.schedule->strategy, r.stack, to_text(r.step.time), to_text(r.step.exposed_communication),
                         to_text(r.memory.device_peak), fits_text(r.memory), to_text_decimal(r.traffic.total),
                         to_text_decimal(r.traffic.textbook), grouped(static_cast<std::int64_t>(r.step.tokens_per_second_per_gpu))});
  return grid;
}

/// How much longer, or that there is no difference to speak of.
std::string longer(const SimulationResult& r, const SimulationResult& than) {
  const double share = r.step.time / than.step.time - 1;
  return share < 0.0005 ? "as fast" : percent_text(share) + " slower";
}

/// Which strategy to take: the fastest that fits, what bounds it, and what stands next to it.
std::string verdict(const std::vector<SimulationResult>& results) {
  const auto fits = [](const SimulationResult& r) { return r.memory.fits; };
  const auto best = std::find_if(results.begin(), results.end(), fits);
  if (best == results.end()) {
    const auto leanest = std::min_element(results.begin(), results.end(), [](const SimulationResult& a, const SimulationResult& b) {
      return a.memory.device_peak < b.memory.device_peak;
    });
    return fmt::format("None fits: the leanest, {}, needs {} of {}.", leanest->schedule->strategy, to_text(leanest->memory.device_peak),
                       to_text(leanest->memory.capacity));
  }
  std::string out =
      fmt::format("Fastest that fits: {}, {} a step, bound by {}", best->schedule->strategy, to_text(best->step.time), best->step.bound_by);
  if (const auto next = std::find_if(best + 1, results.end(), fits); next != results.end())
    out += fmt::format("; the next, {}, is {}", next->schedule->strategy, longer(*next, *best));
  if (best != results.begin())
    out += fmt::format("; {} would be faster but needs {} of {}", results.front().schedule->strategy,
                       to_text(results.front().memory.device_peak), to_text(results.front().memory.capacity));
  return out + ".";
}

std::string rescue_text(const Rescue& rescue) {
  const MemoryChange& change = rescue.change;
  std::string out = wrapped(fmt::format("{} would fit with {}: {}, time a token {:+.1f} %.", rescue.strategy, change.text,
                                        to_text(change.device_peak), 100 * change.time),
                            0, 0) +
                    "\n";
  for (const std::string& assignment : change.assignments) out += "  --set '" + assignment + "'\n";
  for (const std::string& line : change.config) out += "  " + wrapped(line, 2, 2) + "\n";
  return out;
}

}  // namespace

std::string comparison_table(const Comparison& comparison) {
  if (comparison.results.empty()) return "No strategy can run this job.\n";
  const SimulationResult& first = comparison.results.front();
  std::string out = wrapped(fmt::format("{}: {}, {} parameters, {}", first.scenario, first.model_name, grouped(first.parameters.value()),
                                        gpus_text(first.world_size)),
                            2, 0) +
                    "\n\n";
  out += ranking(comparison).text();
  out += "\n" + wrapped(verdict(comparison.results), 0, 0) + "\n";
  if (comparison.rescue) out += rescue_text(*comparison.rescue);
  if (!comparison.crossovers.empty()) out += "\nThe order changes with the micro-batch:\n";
  for (const Crossover& c : comparison.crossovers)
    out += "  " +
           wrapped(fmt::format("from {} ({} tokens per GPU) {} beats {}{}", c.micro_batch, grouped(c.tokens_per_gpu), c.from, c.below,
                               c.fits ? "" : " (does not fit)"),
                   4, 2) +
           "\n";
  return out + assumed_text(comparison.assumed) + warnings_text(comparison.warnings());
}

}  // namespace shardsim
