// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/comparison.hpp"
#include "cli/log.hpp"
#include "cli/simulation_job.hpp"
#include "cli/variant.hpp"
#include "reports/output.hpp"
#include "reports/simulate_json.hpp"
#include "reports/text.hpp"
#include "sim/core/units_text.hpp"

namespace shardsim {
namespace {

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

ExitCode run(const Arguments& arguments) {
  const Scenario base = value_or_throw(load_scenario(arguments.text("SCENARIO"), arguments.texts("--set")));
  const Comparison comparison = compare_strategies(base, strategy_list(arguments.text("--strategies", "all")));
  for (const NotRun& n : comparison.not_run) log_warning(fmt::format("{} left out: {}", n.strategy, n.why));
  const std::string format = arguments.text("--format", "table");
  if (format == "json")
    write_output("-", comparison_json(comparison).text() + "\n");
  else if (format == "csv")
    write_output("-", simulate_csv(comparison.results));
  else
    write_output("-", comparison_table(comparison));
  return ExitCode::done;
}

}  // namespace

Command compare_command() {
  return {
      .name = "compare",
      .summary = "rank strategies on one job",
      .details =
          "The scenario's own strategy keeps its options; the others run with their defaults. Also tells at which micro-batch the order "
          "changes.",
      .arguments =
          {{.name = "SCENARIO", .help = "scenario file (YAML)", .required = true},
           {.name = "--strategies", .value = "LIST", .help = "names with commas between them, or all", .fallback = "all"},
           {.name = "--format", .value = "FORMAT", .help = "form of the report", .words = {"table", "json", "csv"}, .fallback = "table"},
           {.name = "--set", .value = "KEY=VALUE", .help = "override a key of the scenario", .many = true}},
      .run = run};
}

}  // namespace shardsim
