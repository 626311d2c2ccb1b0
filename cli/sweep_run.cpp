// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_run.hpp"

#include <algorithm>

#include "cli/simulation_job.hpp"
#include "cli/variant.hpp"
#include "reports/csv.hpp"
#include "reports/simulate_json.hpp"

namespace shardsim {
namespace {

/// The figures of one row; a reason instead if there are none.
struct Figures {
  Json json;
  std::string error;
};

Figures simulate_row(const SweepPlan& plan, std::uint64_t index) {
  const auto scenario = read_scenario(plan.scenario(index), plan.base_file, plan.base_folder);
  if (!scenario) return {{}, first_message(scenario.error())};
  try {
    return {simulate_json(simulate_scenario(*scenario)), {}};
  } catch (const InputError& error) { return {{}, error.problems.empty() ? error.what() : first_message(error.problems)}; }
}

/// A row is a line: what would break it becomes a space.
std::string on_one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::string csv_line(const std::vector<std::string>& fields) {
  std::string line = csv_row(fields);
  line.pop_back();  // the line's end is the journal's
  return line;
}

std::string as_csv(const SweepPlan& plan, std::uint64_t index, const Figures& figures) {
  std::vector<std::string> fields{std::to_string(index)};
  for (const Node* value : plan.values(index)) fields.push_back(on_one_line(flow_text(*value)));
  fields.push_back(on_one_line(figures.error));
  for (const std::string& column : plan.columns) {
    const Json* figure = figures.json.find(column);
    fields.push_back(figure == nullptr ? std::string() : on_one_line(csv_field(*figure)));
  }
  return csv_line(fields);
}

std::string as_json(const SweepPlan& plan, std::uint64_t index, const Figures& figures) {
  Json::Object set, chosen;
  const auto keys = plan.keys();
  const auto values = plan.values(index);
  for (std::size_t i = 0; i < keys.size(); ++i) set.emplace_back(keys[i], flow_text(*values[i]));
  Json row;
  row.add("index", static_cast<std::int64_t>(index));
  row.add("set", std::move(set));
  row.add("error", figures.error.empty() ? Json() : Json(figures.error));
  if (plan.columns == simulate_columns()) {
    row.add("result", figures.json);
    return row.line();
  }
  for (const std::string& column : plan.columns)
    if (const Json* figure = figures.json.find(column)) chosen.emplace_back(column, *figure);
  row.add("result", figures.error.empty() ? Json(std::move(chosen)) : Json());
  return row.line();
}

}  // namespace

std::vector<std::string> simulate_columns() {
  SimulationResult nothing;
  nothing.schedule = std::make_shared<const Schedule>();
  return leaf_paths(simulate_json(nothing));
}

std::string sweep_header(const SweepPlan& plan, RowFormat format) {
  if (format == RowFormat::json_lines) return {};
  std::vector<std::string> fields{"index"};
  for (const std::string& key : plan.keys()) fields.push_back(key);
  fields.emplace_back("error");
  fields.insert(fields.end(), plan.columns.begin(), plan.columns.end());
  return csv_line(fields);
}

std::string sweep_row(const SweepPlan& plan, std::uint64_t index, RowFormat format) {
  const Figures figures = simulate_row(plan, index);
  return format == RowFormat::csv ? as_csv(plan, index, figures) : as_json(plan, index, figures);
}

}  // namespace shardsim
