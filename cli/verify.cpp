// SPDX-License-Identifier: Apache-2.0
// shardsim verify: a scenario's prediction against a recorded run.
#include "shardsim/verify.hpp"

#include "cli/commands.hpp"
#include "cli/html_file.hpp"
#include "shardsim/report.hpp"

namespace shardsim {
namespace {

ExitCode run_verify(const Arguments& arguments) {
  const Scenario scenario = value_or_throw(load_scenario(arguments.text("SCENARIO"), arguments.texts("--set")));
  const RunRecord run = value_or_throw(read_run(value_or_throw(read_source(arguments.text("--run"), {.bytes = std::size_t{256} << 20}))));
  HtmlFile html(arguments);
  const Verification found = verify(scenario, run);
  if (html.wanted()) html.write(verification_page(found));
  if (!html.replaces_report())
    write_output("-", arguments.text("--format", "table") == "json" ? verification_json(found).text() + "\n" : verification_table(found));
  return found.agrees() ? ExitCode::done : ExitCode::no;
}

}  // namespace

Command verify_command() {
  return {
      .name = "verify",
      .summary = "hold a prediction against a real run",
      .details =
          "The run is what shardsim.torch.record() wrote: collectives, times and memory of a few steps of the real job. Differences are "
          "shown next to each "
          "other, then the changes of the scenario that explain most of them, found by simulation. Exit code 1 if the job sends other "
          "bytes than predicted.",
      .arguments = {{.name = "SCENARIO", .help = "scenario file (YAML) of the job", .required = true},
                    {.name = "--run", .value = "FILE", .help = "the recorded run (JSON)", .required = true},
                    {.name = "--format", .value = "FORMAT", .help = "form of the report", .words = {"table", "json"}, .fallback = "table"},
                    html_argument(),
                    {.name = "--set", .value = "KEY=VALUE", .help = "override a key of the scenario", .many = true}},
      .run = run_verify};
}

}  // namespace shardsim
