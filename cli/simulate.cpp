// SPDX-License-Identifier: Apache-2.0
#include "shardsim/simulate.hpp"

#include <fmt/format.h>

#include <optional>

#include "cli/commands.hpp"
#include "cli/html_file.hpp"
#include "cli/log.hpp"
#include "shardsim/report.hpp"
#include "shardsim/scenario.hpp"

namespace shardsim {
namespace {

/// The files asked for beside the report, opened before the work begins.
struct Extras {
  std::optional<Output> trace, schedule, html, svg;
  bool on_standard_output = false;
};

std::optional<Output> open_extra(const Arguments& arguments, const std::string& name, Extras& extras) {
  if (!arguments.given(name)) return std::nullopt;
  const std::string path = arguments.text(name);
  if (path == "-" && std::exchange(extras.on_standard_output, true)) throw InputError("standard output can take one file only");
  return Output(path);
}

Extras open_extras(const Arguments& arguments) {
  Extras extras;
  extras.trace = open_extra(arguments, "--trace", extras);
  extras.schedule = open_extra(arguments, "--dump-schedule", extras);
  extras.html = open_extra(arguments, "--html", extras);
  extras.svg = open_extra(arguments, "--svg", extras);
  if (extras.on_standard_output && arguments.given("--format")) throw InputError("standard output can take the report or a file, not both");
  if ((extras.trace || extras.schedule || extras.html || extras.svg) && arguments.texts("SCENARIO").size() > 1)
    throw InputError("--trace, --html, --svg and --dump-schedule need a single scenario");
  return extras;
}

void finish(std::optional<Output>& output, const std::string& text) {
  output->write(text);
  output->commit();
}

std::string report(std::span<const SimulationResult> results, const std::string& format) {
  if (format == "csv") return simulate_csv(results);
  if (format == "json") {
    if (results.size() == 1) return simulate_json(results.front()).text() + "\n";
    Json::List list;
    for (const SimulationResult& result : results) list.push_back(simulate_json(result));
    return Json(std::move(list)).text() + "\n";
  }
  std::string out;
  for (const SimulationResult& result : results) out += (out.empty() ? "" : "\n") + simulate_table(result);
  return out;
}

ExitCode run_simulate(const Arguments& arguments) {
  Extras extras = open_extras(arguments);
  std::vector<Scenario> scenarios;
  Problems problems;
  for (const std::string& path : arguments.texts("SCENARIO")) {
    auto scenario = load_scenario(path, arguments.texts("--set"));
    if (scenario)
      scenarios.push_back(std::move(*scenario));
    else
      problems.append(scenario.error());
  }
  if (!problems.empty()) throw InputError(std::move(problems));
  for (const std::optional<Output>* output : {&extras.trace, &extras.schedule, &extras.html, &extras.svg})
    if (*output) (*output)->keep_apart_from(input_files(scenarios.front()));

  std::vector<SimulationResult> results;
  for (const Scenario& scenario : scenarios)
    results.push_back(simulate_scenario(scenario, Detail{.timeline = extras.trace || extras.html || extras.svg}));

  if (arguments.flag("--explain"))
    for (std::size_t i = 0; i < results.size(); ++i)
      results[i].explanation = std::make_shared<const MemoryExplanation>(explain_memory(scenarios[i], results[i]));

  const std::string format = arguments.text("--format", "table");
  if (format != "csv")
    for (std::size_t i = 0; i < results.size(); ++i)
      results[i].assumed = std::make_shared<const Assumptions>(assumptions_of(scenarios[i], results[i]));
  if (format != "table")  // the table shows them itself
    for (const SimulationResult& result : results)
      for (const std::string& warning : result.warnings) log_warning(fmt::format("{}: {}", result.scenario, warning));
  if (extras.trace) finish(extras.trace, chrome_trace(results.front()));
  if (extras.html) finish(extras.html, html_page(simulate_page(results.front())));
  if (extras.svg) finish(extras.svg, timeline_svg(results.front()));
  if (extras.schedule) finish(extras.schedule, to_text(*results.front().schedule));
  if (!extras.on_standard_output) write_output("-", report(results, format));
  return ExitCode::done;
}

}  // namespace

Command simulate_command() {
  return {
      .name = "simulate",
      .summary = "predict one training step of each scenario",
      .arguments =
          {{.name = "SCENARIO", .help = "scenario file (YAML)", .required = true, .many = true},
           {.name = "--format", .value = "FORMAT", .help = "form of the report", .words = {"table", "json", "csv"}, .fallback = "table"},
           {.name = "--trace", .value = "FILE", .help = "write a timeline for Perfetto or chrome://tracing ('-': standard output)"},
           html_argument(),
           {.name = "--svg", .value = "FILE", .help = "write the timeline as a picture for documents"},
           {.name = "--dump-schedule", .value = "FILE", .help = "write the operations of the step as text"},
           {.name = "--explain", .help = "say what the memory consists of and which single change lowers it, by simulating each"},
           {.name = "--set",
            .value = "KEY=VALUE",
            .help = "override a key of the scenarios, as in training.micro_batch_size=2",
            .many = true}},
      .run = run_simulate};
}

}  // namespace shardsim
