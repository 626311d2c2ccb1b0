// SPDX-License-Identifier: Apache-2.0
#include "cli/comparison_report.hpp"

#include <fmt/format.h>

#include "reports/simulate_json.hpp"
#include "reports/text.hpp"
#include "sim/core/units_text.hpp"

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
  return json;
}

namespace {

TextGrid ranking(const Comparison& comparison) {
  TextGrid grid{.header = {"Strategy", "Step", "Exposed", "Peak", "Fits", "Sent", "Textbook", "tok/s/GPU"},
                .right = {false, true, true, true, false, true, true, true},
                .rows = {}};
  for (const SimulationResult& r : comparison.results)
    grid.rows.push_back({r.schedule->strategy, to_text(r.step.time), to_text(r.step.exposed_communication), to_text(r.memory.device_peak),
                         r.memory.fits ? "yes" : "no", to_text_decimal(r.traffic.total), to_text_decimal(r.traffic.textbook),
                         grouped(static_cast<std::int64_t>(r.step.tokens_per_second_per_gpu))});
  return grid;
}

}  // namespace

std::string comparison_table(const Comparison& comparison) {
  if (comparison.results.empty()) return "No strategy can run this job.\n";
  const SimulationResult& first = comparison.results.front();
  std::string out = fmt::format("{}: {}, {} parameters, {} GPUs\n\n", first.scenario, first.model_name, grouped(first.parameters.value()),
                                grouped(first.world_size));
  out += ranking(comparison).text();
  if (!comparison.crossovers.empty()) out += "\nThe order changes with the micro-batch:\n";
  for (const Crossover& c : comparison.crossovers)
    out += fmt::format("  from {} ({} tokens per GPU) {} beats {}{}\n", c.micro_batch, grouped(c.tokens_per_gpu), c.from, c.below,
                       c.fits ? "" : " (does not fit)");
  return out;
}

}  // namespace shardsim
