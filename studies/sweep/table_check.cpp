// SPDX-License-Identifier: Apache-2.0
#include "studies/sweep/table_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "scenarios/reader/scenario.hpp"
#include "studies/sweep/journal.hpp"

namespace shardsim {
namespace {

std::vector<std::string> option_names() {
  std::vector<std::string> names{"name", "semantics"};
  for (const StrategyInfo& info : strategies())
    for (const OptionSpec& option : info.options)
      if (std::find(names.begin(), names.end(), option.name) == names.end()) names.push_back(option.name);
  return names;
}

/// The part of a CSV line behind its first `fields` fields. A comma within quotes ends no field; a doubled quote leaves both states as
/// they were.
std::string_view behind_fields(std::string_view line, std::size_t fields) {
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == ',' && !quoted && --fields == 0) return line.substr(i + 1);
  }
  return {};
}

bool failed(std::string_view line, std::size_t keys) {
  if (line.starts_with('{')) return line.find("\"error\":null") == std::string_view::npos;
  const std::string_view rest = behind_fields(line, keys + 1);  // the row's number stands first
  return !rest.empty() && rest.front() != ',';
}

}  // namespace

Problems unknown_keys(const SweepPlan& plan) {
  Problems problems;
  const std::vector<std::string> options = option_names();
  const auto keys = plan.keys();
  const auto values = plan.values(0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    constexpr std::string_view strategy = "strategy.";
    if (!keys[i].starts_with(strategy)) continue;
    const std::string option = keys[i].substr(strategy.size());
    if (std::find(options.begin(), options.end(), option) == options.end())
      problems.add(values[i]->where, fmt::format("no strategy has an option '{}'", option), notes_for_unknown(option, options));
  }
  // Every row has the same keys, so the first tells which of them a scenario does not have. Options depend on the row's strategy.
  const auto first = read_scenario(plan.scenario(0), plan.base_file, plan.base_folder);
  if (first) return problems;
  for (const Problem& problem : first.error().list())
    if (problem.message.starts_with("unknown key") && problem.message.find(" in strategy") == std::string::npos)
      problems.add(problem.where, problem.message, problem.notes);
  return problems;
}

FailedRows failed_rows(const std::string& table, const SweepPlan& plan) {
  FailedRows found;
  std::ifstream in(table);
  const std::size_t keys = plan.keys().size();
  std::int64_t lowest = -1;
  for (std::string line; std::getline(in, line);) {
    const std::int64_t row = row_number(line);
    if (row < 0 || !failed(line, keys)) continue;
    ++found.count;
    if (lowest >= 0 && row > lowest) continue;
    lowest = row;
    found.first = line;
  }
  return found;
}

}  // namespace shardsim
