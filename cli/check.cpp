// SPDX-License-Identifier: Apache-2.0
#include "shardsim/check.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "cli/commands.hpp"
#include "cli/log.hpp"
#include "shardsim/report.hpp"

namespace shardsim {
namespace {

void print(const Arguments& arguments, const CheckedFile& findings) {
  const bool json = arguments.text("--format", "table") == "json";
  if (const char* github = std::getenv("GITHUB_ACTIONS"); github && std::string_view(github) == "true") {
    // GitHub reads its commands from both streams; standard output may hold JSON.
    const char* root = std::getenv("GITHUB_WORKSPACE");
    const std::string text = github_annotations(findings.cases, root == nullptr ? "" : root);
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
  std::fwrite(findings.problems.data(), 1, findings.problems.size(), stderr);
  for (const std::string& warning : findings.warnings) log_warning(warning);
  if (json) {
    Json report = check_json(findings.cases);
    report.add("warnings", Json::List(findings.warnings.begin(), findings.warnings.end()));
    write_output("-", report.text() + "\n");
    return;
  }
  write_output("-", (findings.changes.empty() ? "" : "Baselines rewritten\n" + findings.changes + "\n") + check_table(findings.cases));
}

ExitCode run_check(const Arguments& arguments) {
  std::optional<Output> junit;
  if (arguments.given("--junit")) junit.emplace(arguments.text("--junit"));
  CheckedFile all;
  const auto passed_over = [](const std::string& other) { log_info(other + " is not a scenario: passed over"); };
  const std::vector<std::string> files = scenario_files(arguments.texts("PATH"), passed_over);
  if (junit) junit->keep_apart_from(files);
  for (const std::string& file : files) {
    CheckedFile found = check_file(file, arguments.flag("--update"));
    if (junit) junit->keep_apart_from(found.inputs);
    if (found.rewritten) write_output(file, *found.rewritten);
    std::move(found.cases.begin(), found.cases.end(), std::back_inserter(all.cases));
    all.problems += found.problems;
    all.changes += found.changes;
    std::move(found.warnings.begin(), found.warnings.end(), std::back_inserter(all.warnings));
  }
  if (junit) {
    junit->write(junit_xml(all.cases));
    junit->commit();
  }
  if (arguments.text("--junit") != "-") print(arguments, all);
  if (!all.problems.empty()) return ExitCode::bad_input;
  return failures(all.cases) > 0 ? ExitCode::no : ExitCode::done;
}

}  // namespace

Command check_command() {
  return {
      .name = "check",
      .summary = "compare scenarios with what their expect blocks say",
      .details = "Exit code 1 if a figure is not as expected or a scenario expects nothing, 2 if a scenario cannot be read.",
      .arguments = {{.name = "PATH", .help = "scenario file, or a folder searched for them", .required = true, .many = true},
                    {.name = "--junit", .value = "FILE", .help = "write the outcome as JUnit XML"},
                    {.name = "--update", .help = "rewrite the baselines in the scenario files, showing the change"},
                    {.name = "--format", .value = "FORMAT", .help = "form of the report", .words = {"table", "json"}, .fallback = "table"}},
      .run = run_check};
}

}  // namespace shardsim
