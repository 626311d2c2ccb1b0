// SPDX-License-Identifier: Apache-2.0
#include "studies/check/check.hpp"

#include <fmt/format.h>

#include <chrono>

#include "scenarios/reader/named_files.hpp"
#include "studies/check/baselines.hpp"
#include "studies/check/expectations.hpp"
#include "studies/formula/symbols.hpp"
#include "studies/simulate/simulate_json.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {
namespace {

using Outcome = CheckCase::Outcome;

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

void apply(const Scenario& scenario, std::vector<BaselineEdit> edits, CheckedFile& findings) {
  if (edits.empty()) return;
  for (const BaselineEdit& edit : edits) {
    const auto from = ExactNumber::parse(edit.from), to = ExactNumber::parse(edit.to);
    const std::string moved = from && to ? moved_text(*from, *to) : "";
    findings.changes +=
        fmt::format("{}:{}: {} -> {}{}\n", scenario.file, edit.where.line, edit.from, edit.to, moved.empty() ? "" : "  " + moved);
  }
  findings.rewritten = with_edits(value_or_throw(read_source(scenario.file)).text, std::move(edits));
}

void check_scenario(const std::string& file, bool update, CheckedFile& findings) {
  const Scenario scenario = value_or_throw(load_scenario(file));
  findings.inputs = input_files(scenario);
  if (scenario.expect.empty()) {
    findings.cases.push_back(single_case(file, "expect", Outcome::failed, "the scenario has no expect block: nothing is checked"));
    return;
  }
  const SimulationResult simulated = simulate_scenario(scenario);
  for (const std::string& warning : simulated.warnings) findings.warnings.push_back(file + ": " + warning);
  const Json result = simulate_json(simulated);
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

}  // namespace

CheckedFile check_file(const std::string& file, bool update) {
  CheckedFile findings;
  const auto begin = std::chrono::steady_clock::now();
  try {
    check_scenario(file, update, findings);
  } catch (const InputError& error) {
    findings.problems += error.what();
    findings.cases.push_back(single_case(file, "scenario", Outcome::error, first_message(error.what())));
  }
  findings.cases.front().seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return findings;
}

}  // namespace shardsim
