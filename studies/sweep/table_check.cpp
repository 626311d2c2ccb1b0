// SPDX-License-Identifier: Apache-2.0
#include "studies/sweep/table_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "scenarios/reader/scenario.hpp"

namespace shardsim {
namespace {

std::vector<std::string> option_names() {
  std::vector<std::string> names{"name", "semantics"};
  for (const StrategyInfo& info : strategies())
    for (const OptionSpec& option : info.options)
      if (std::find(names.begin(), names.end(), option.name) == names.end()) names.push_back(option.name);
  return names;
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

}  // namespace shardsim
