// SPDX-License-Identifier: Apache-2.0
// validate: predictions next to published measurements.
#include "cli/validate.hpp"

#include "cli/log.hpp"
#include "shardsim/report.hpp"
#include "shardsim/validate.hpp"

namespace shardsim {
namespace {

std::string shipped_rows() { return shipped_folder() + "/validation"; }

void write_whole(const std::string& path, const std::string& text) {
  Output output(path);
  output.write(text);
  output.commit();
}

ExitCode hold_to_record(const ValidationReport& report, const std::string& path) {
  const ConfigNode recorded = value_or_throw(read_source(path).and_then([](const Source& source) { return read_json(source); }));
  const auto worse = worse_than_recorded(figures_of(report), recorded);
  for (const std::string& line : worse) log_warning("worse than recorded: " + line);
  return worse.empty() ? ExitCode::done : ExitCode::no;
}

ExitCode run_validate(const Arguments& arguments) {
  const std::string folder = arguments.text("FOLDER", shipped_rows());
  const ValidationReport report = validate(value_or_throw(load_measurements(folder)));
  if (arguments.given("--markdown")) write_whole(arguments.text("--markdown"), accuracy_page(report));
  if (arguments.given("--record")) {
    Json figures;
    for (const Figure& figure : figures_of(report)) figures.add(figure.name, figure.value);
    write_whole(arguments.text("--record"), figures.text() + "\n");
  }
  const std::string format = arguments.text("--format", "table");
  if (arguments.text("--markdown") != "-" && arguments.text("--record") != "-")
    write_output("-", format == "json"  ? validation_json(report).text() + "\n"
                      : format == "csv" ? validation_csv(report)
                                        : validation_table(report));
  return arguments.given("--check") ? hold_to_record(report, arguments.text("--check")) : ExitCode::done;
}

}  // namespace

Command validate_command() {
  return {
      .name = "validate",
      .summary = "predict published measurements and report the errors",
      .details =
          "Throughput, scaling, order of strategies and memory of public training runs (docs/accuracy.md says from where), next to a "
          "constant MFU for each GPU. "
          "Rows that constants were fitted to are reported apart.",
      .arguments =
          {{.name = "FOLDER", .help = "folder of measurements (default: those shipped)"},
           {.name = "--format", .value = "FORMAT", .help = "form of the report", .words = {"table", "json", "csv"}, .fallback = "table"},
           {.name = "--markdown", .value = "FILE", .help = "write the page docs/accuracy.md"},
           {.name = "--record", .value = "FILE", .help = "write the figures that must not get worse (JSON)"},
           {.name = "--check", .value = "FILE", .help = "exit code 1 if a figure is worse than this file records"}},
      .run = run_validate};
}

}  // namespace shardsim
