// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/html_file.hpp"
#include "cli/log.hpp"
#include "shardsim/report.hpp"
#include "shardsim/scenario.hpp"
#include "shardsim/simulate.hpp"

namespace shardsim {
namespace {

ExitCode run_compare(const Arguments& arguments) {
  const Scenario base = value_or_throw(load_scenario(arguments.text("SCENARIO"), arguments.texts("--set")));
  HtmlFile html(arguments);
  html.keep_apart_from(input_files(base));
  const Comparison comparison = compare_strategies(base, strategy_list(arguments.text("--strategies", "all")));
  for (const NotRun& n : comparison.not_run) log_warning(fmt::format("{} left out: {}", n.strategy, n.why));
  if (html.wanted()) html.write(comparison_page(comparison));
  const std::string format = arguments.text("--format", html.replaces_report() ? "none" : "table");
  if (format == "json")
    write_output("-", comparison_json(comparison).text() + "\n");
  else if (format == "csv")
    write_output("-", simulate_csv(comparison.results));
  else if (format == "table")
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
           html_argument(),
           {.name = "--set", .value = "KEY=VALUE", .help = "override a key of the scenario", .many = true}},
      .run = run_compare};
}

}  // namespace shardsim
