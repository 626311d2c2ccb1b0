// SPDX-License-Identifier: Apache-2.0
#include "studies/sweep/rows.hpp"

#include <algorithm>

#include "sim/base/csv.hpp"
#include "studies/compare/variant.hpp"
#include "studies/simulate/simulate_json.hpp"

namespace shardsim {
namespace {

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

/// "step" of "step.time_s": once each.
std::vector<std::string> parts_of(const std::vector<std::string>& columns) {
  std::vector<std::string> parts;
  for (const std::string& column : columns) parts.push_back(column.substr(0, column.find('.')));
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  return parts;
}

}  // namespace

/// The figures of one row; a reason instead if there are none.
struct SweepRows::Figures {
  Json json;
  std::string error;
};

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
  if (plan.says_which_rule) fields.emplace_back("reserved_by");
  fields.insert(fields.end(), plan.columns.begin(), plan.columns.end());
  return csv_line(fields);
}

SweepRows::SweepRows(const SweepPlan& plan, RowFormat format)
    : plan_(plan),
      format_(format),
      all_columns_(plan.columns == simulate_columns()),
      parts_(parts_of(plan.columns)),
      scenarios_(plan.base_file, plan.base_folder) {}

SweepRow SweepRows::row(std::uint64_t index) {
  const Figures figures = simulate(index);
  return {format_ == RowFormat::csv ? as_csv(index, figures) : as_json(index, figures), !figures.error.empty()};
}

SweepRows::Figures SweepRows::simulate(std::uint64_t index) {
  const auto scenario = scenarios_.read(plan_.scenario(index));
  if (!scenario) return {{}, first_message(scenario.error())};
  Detail detail;
  if (!plan_.allocator) detail.allocator = std::nullopt;
  try {
    const SimulationResult result = jobs_.simulate(*scenario, detail);
    return {all_columns_ ? simulate_json(result) : simulate_figures(result, parts_), {}};
  } catch (const InputError& error) { return {{}, error.problems.empty() ? error.what() : first_message(error.problems)}; }
}

std::string SweepRows::as_csv(std::uint64_t index, const Figures& figures) const {
  std::vector<std::string> fields{std::to_string(index)};
  for (const ConfigNode* value : plan_.values(index)) fields.push_back(on_one_line(flow_text(*value)));
  fields.push_back(on_one_line(figures.error));
  if (plan_.says_which_rule) fields.emplace_back(figures.error.empty() ? "pools" : "");
  for (const std::string& column : plan_.columns) {
    const Json* figure = figures.json.find(column);
    fields.push_back(figure == nullptr ? std::string() : on_one_line(csv_field(*figure)));
  }
  return csv_line(fields);
}

std::string SweepRows::as_json(std::uint64_t index, const Figures& figures) const {
  Json::Object set, chosen;
  const auto keys = plan_.keys();
  const auto values = plan_.values(index);
  for (std::size_t i = 0; i < keys.size(); ++i) set.emplace_back(keys[i], flow_text(*values[i]));
  Json row;
  row.add("index", static_cast<std::int64_t>(index));
  row.add("set", std::move(set));
  row.add("error", figures.error.empty() ? Json() : Json(figures.error));
  if (plan_.says_which_rule) row.add("reserved_by", "pools");
  if (all_columns_) {
    row.add("result", figures.json);
    return row.line();
  }
  for (const std::string& column : plan_.columns)
    if (const Json* figure = figures.json.find(column)) chosen.emplace_back(column, *figure);
  row.add("result", figures.error.empty() ? Json(std::move(chosen)) : Json());
  return row.line();
}

}  // namespace shardsim
