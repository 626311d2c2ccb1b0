// SPDX-License-Identifier: Apache-2.0
#include "shardsim/check.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "cli/commands.hpp"
#include "cli/log.hpp"
#include "shardsim/formula.hpp"
#include "shardsim/report.hpp"
#include "shardsim/scenario.hpp"
#include "shardsim/simulate.hpp"

namespace shardsim {
namespace {

using Outcome = CheckCase::Outcome;

/// Everything that one run of `check` finds.
struct Findings {
  CheckCases cases;
  std::string problems;  ///< of the input, as text
  std::string changes;   ///< of baselines, one line each
};

CheckCase single_case(const std::string& file, const char* metric, Outcome outcome, std::string message) {
  CheckCase c;
  c.scenario = file;
  c.metric = metric;
  c.outcome = outcome;
  c.message = std::move(message);
  return c;
}

/// The first line of a problem's text, without the place in front of it: what a report has room for.
std::string first_message(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  const std::size_t at = line.find("error: ");
  return at == std::string::npos ? line : line.substr(at + 7);
}

void apply(const Scenario& scenario, std::vector<BaselineEdit> edits, Findings& findings) {
  if (edits.empty()) return;
  for (const BaselineEdit& edit : edits) {
    const auto from = ExactNumber::parse(edit.from), to = ExactNumber::parse(edit.to);
    const std::string moved = from && to ? moved_text(*from, *to) : "";
    findings.changes +=
        fmt::format("{}:{}: {} -> {}{}\n", scenario.file, edit.where.line, edit.from, edit.to, moved.empty() ? "" : "  " + moved);
  }
  const Source source = value_or_throw(read_source(scenario.file));
  write_output(scenario.file, with_edits(source.text, std::move(edits)));
}

void check_scenario(const std::string& file, bool update, Findings& findings) {
  const Scenario scenario = value_or_throw(load_scenario(file));
  if (scenario.expect.empty()) {
    findings.cases.push_back(single_case(file, "expect", Outcome::failed, "the scenario has no expect block: nothing is checked"));
    return;
  }
  const Json result = simulate_json(simulate_scenario(scenario));
  const Symbols symbols = symbols_of(scenario.job());
  Problems problems;
  std::vector<BaselineEdit> edits;
  for (std::size_t i = 0; i < scenario.expect.size(); ++i) {
    auto checked = check_expectation(scenario.expect[i], result, symbols);
    if (!checked) {
      problems.append(checked.error());
      continue;
    }
    checked->scenario = file;
    const auto actual = number_of(checked->actual);
    const auto edit = update && actual ? baseline_edit(scenario, i, *actual) : std::nullopt;
    if (edit) {
      edits.push_back(*edit);
      checked->outcome = Outcome::ok;
      checked->expected = checked->actual;
    }
    findings.cases.push_back(std::move(*checked));
  }
  if (!problems.empty()) throw InputError(std::move(problems));
  apply(scenario, std::move(edits), findings);
}

void check_file(const std::string& file, bool update, Findings& findings) {
  const auto begin = std::chrono::steady_clock::now();
  const std::size_t first = findings.cases.size();
  try {
    check_scenario(file, update, findings);
  } catch (const InputError& error) {
    findings.problems += error.what();
    findings.cases.push_back(single_case(file, "scenario", Outcome::error, first_message(error.what())));
  }
  findings.cases[first].seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void print(const Arguments& arguments, const Findings& findings) {
  const bool json = arguments.text("--format", "table") == "json";
  if (const char* github = std::getenv("GITHUB_ACTIONS"); github && std::string_view(github) == "true") {
    // GitHub reads its commands from both streams; standard output may hold JSON.
    const std::string text = github_annotations(findings.cases);
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
  std::fwrite(findings.problems.data(), 1, findings.problems.size(), stderr);
  if (json)
    write_output("-", check_json(findings.cases).text() + "\n");
  else
    write_output("-", (findings.changes.empty() ? "" : "Baselines rewritten\n" + findings.changes + "\n") + check_table(findings.cases));
}

ExitCode run_check(const Arguments& arguments) {
  std::optional<Output> junit;
  if (arguments.given("--junit")) junit.emplace(arguments.text("--junit"));
  Findings findings;
  for (const std::string& file :
       scenario_files(arguments.texts("PATH"), [](const std::string& other) { log_info(other + " is no scenario: passed over"); }))
    check_file(file, arguments.flag("--update"), findings);
  if (junit) {
    junit->write(junit_xml(findings.cases));
    junit->commit();
  }
  if (arguments.text("--junit") != "-") print(arguments, findings);
  if (!findings.problems.empty()) return ExitCode::bad_input;
  return failures(findings.cases) > 0 ? ExitCode::no : ExitCode::done;
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
