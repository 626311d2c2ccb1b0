// SPDX-License-Identifier: Apache-2.0
// A validation as figures: what must not get worse, JSON, CSV.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/csv.hpp"
#include "studies/validate/validation.hpp"

namespace shardsim {
namespace {

constexpr double rounding = 0.0005;  // of a share; counts are whole

Json errors_json(const Errors& errors) {
  if (errors.rows == 0) return Json::Object{{"rows", 0}};
  return Json::Object{{"rows", static_cast<std::int64_t>(errors.rows)},
                      {"median", errors.median},
                      {"mean", errors.mean},
                      {"p90", errors.p90},
                      {"bias", errors.bias}};
}

Json groups_json(const std::vector<ErrorGroup>& groups) {
  Json::List list;
  for (const ErrorGroup& group : groups)
    list.push_back(Json::Object{{"name", group.name},
                                {"fit_rows", static_cast<std::int64_t>(group.fit_rows)},
                                {"model", errors_json(group.model)},
                                {"constant_mfu", errors_json(group.baseline)}});
  return list;
}

Json row_json(const ValidatedRow& row) {
  Json json(
      Json::Object{{"id", row.row->id}, {"source", row.source->name}, {"use", name_of(row.row->use)}, {"software", row.row->software}});
  if (!row.problem.empty()) {
    json.add("problem", row.problem);
    return json;
  }
  json.add("gpu", row.gpu);
  json.add("strategy", row.strategy);
  json.add("world_size", row.world_size);
  json.add("predicted_tokens_per_second_per_gpu", row.tokens_per_second_per_gpu);
  if (row.measured) {
    json.add("measured_tokens_per_second_per_gpu", *row.measured);
    json.add("error", row.error);
    json.add("constant_mfu_error", row.baseline_error);
  }
  json.add("predicted_allocated_bytes", row.allocated.value());
  json.add("predicted_reserved_bytes", row.reserved.value());
  if (row.row->allocated) json.add("measured_allocated_bytes", row.row->allocated->value());
  if (row.row->reserved) json.add("measured_reserved_bytes", row.row->reserved->value());
  json.add("predicted_fits", row.fits);
  if (row.row->fits) json.add("measured_fits", *row.row->fits);
  json.add("bound_by", row.bound_by);
  if (!row.row->unstated.empty()) json.add("unstated", row.row->unstated);
  return json;
}

std::size_t wrong(const std::vector<Verdict>& verdicts) {
  return static_cast<std::size_t>(
      std::count_if(verdicts.begin(), verdicts.end(), [](const Verdict& v) { return v.fitted != v.predicted; }));
}

}  // namespace

Errors memory_errors(const ValidationReport& report, std::string_view counter, bool compiled) {
  std::vector<double> errors;
  for (const MemoryError& row : report.memory)
    if (row.counter == counter && row.row->compiled == compiled) errors.push_back(row.error());
  return errors_of(errors);
}

std::vector<Figure> figures_of(const ValidationReport& report) {
  std::vector<Figure> figures;
  const auto add = [&](const std::string& name, const Errors& errors) {
    if (errors.rows == 0) return;
    figures.push_back({name + ".median", errors.median});
    figures.push_back({name + ".mean", errors.mean});
    figures.push_back({name + ".p90", errors.p90});
  };
  add("fit", report.fit);
  add("held_out", report.held_out);
  add("held_out.known_software", report.known_software);
  add("held_out.new_software", report.new_software);
  for (const ErrorGroup& group : report.by_source) add("source." + group.name, group.model);
  add("memory.allocated", memory_errors(report, "allocated", false));
  add("memory.reserved", memory_errors(report, "reserved", false));
  add("memory.reserved_compiled", memory_errors(report, "reserved", true));
  figures.push_back({"verdicts.wrong", static_cast<double>(wrong(report.verdicts))});
  figures.push_back({"order.wrong", static_cast<double>(std::count_if(report.order.begin(), report.order.end(),
                                                                      [](const OrderedPair& pair) { return !pair.right(); }))});
  figures.push_back(
      {"rows.not_simulated", static_cast<double>(std::count_if(report.rows.begin(), report.rows.end(),
                                                               [](const ValidatedRow& row) { return !row.problem.empty(); }))});
  return figures;
}

std::vector<std::string> worse_than_recorded(const std::vector<Figure>& figures, const ConfigNode& recorded) {
  std::vector<std::string> lines;
  Problems problems;
  for (const Entry& entry : recorded.entries) {
    const auto found = std::find_if(figures.begin(), figures.end(), [&](const Figure& figure) { return figure.name == entry.key; });
    const auto value = as_number(entry.value, problems, 0, 1e9);
    if (found == figures.end())
      problems.add(entry.where, "no figure is named " + in_quotes(entry.key));
    else if (value && found->value > *value + rounding)
      lines.push_back(fmt::format("{}: {:.4g}, recorded {:.4g}", found->name, found->value, *value));
  }
  if (!problems.empty()) throw InputError(std::move(problems));
  return lines;
}

Json validation_json(const ValidationReport& report) {
  Json json(Json::Object{{"schema", "shardsim.validate/1"},
                         {"fit", errors_json(report.fit)},
                         {"held_out", errors_json(report.held_out)},
                         {"held_out_of_software_with_fit_rows", errors_json(report.known_software)},
                         {"held_out_of_other_software", errors_json(report.new_software)},
                         {"constant_mfu", errors_json(report.baseline)},
                         {"unstated", errors_json(report.unstated)},
                         {"by_source", groups_json(report.by_source)},
                         {"by_gpu", groups_json(report.by_gpu)},
                         {"by_software", groups_json(report.by_stack)},
                         {"by_strategy", groups_json(report.by_strategy)}});
  Json::List scaling, order, verdicts, left_out, rows;
  for (const ScalingLoss& loss : report.scaling)
    scaling.push_back(Json::Object{{"source", loss.source},
                                   {"rows", loss.what},
                                   {"from_gpus", loss.from},
                                   {"to_gpus", loss.to},
                                   {"measured_loss", loss.measured},
                                   {"predicted_loss", loss.predicted},
                                   {"stated", loss.stated}});
  for (const OrderedPair& pair : report.order)
    order.push_back(Json::Object{{"source", pair.source},
                                 {"faster", pair.faster},
                                 {"slower", pair.slower},
                                 {"measured", pair.measured},
                                 {"predicted", pair.predicted},
                                 {"right", pair.right()},
                                 {"stated", pair.stated}});
  for (const Verdict& verdict : report.verdicts)
    if (verdict.fitted != verdict.predicted)
      verdicts.push_back(Json::Object{{"id", verdict.row->row->id},
                                      {"micro_batch", verdict.micro_batch},
                                      {"fitted", verdict.fitted},
                                      {"predicted", verdict.predicted}});
  for (const LeftOut& out : report.left_out)
    left_out.push_back(
        Json::Object{{"source", out.source}, {"shipped", errors_json(out.shipped)}, {"refitted_without_it", errors_json(out.refitted)}});
  for (const ValidatedRow& row : report.rows) rows.push_back(row_json(row));
  json.add("scaling", std::move(scaling));
  json.add("order", std::move(order));
  json.add("memory", Json::Object{{"allocated", errors_json(memory_errors(report, "allocated", false))},
                                  {"reserved", errors_json(memory_errors(report, "reserved", false))},
                                  {"reserved_compiled", errors_json(memory_errors(report, "reserved", true))},
                                  {"verdicts", static_cast<std::int64_t>(report.verdicts.size())},
                                  {"wrong_verdicts", std::move(verdicts)}});
  if (!left_out.empty()) json.add("left_out", std::move(left_out));
  json.add("rows", std::move(rows));
  return json;
}

std::string validation_csv(const ValidationReport& report) {
  const std::vector<std::string> columns{"id",
                                         "source",
                                         "use",
                                         "software",
                                         "gpu",
                                         "strategy",
                                         "world_size",
                                         "measured_tokens_per_second_per_gpu",
                                         "predicted_tokens_per_second_per_gpu",
                                         "error",
                                         "constant_mfu_error",
                                         "measured_allocated_bytes",
                                         "predicted_allocated_bytes",
                                         "measured_reserved_bytes",
                                         "predicted_reserved_bytes",
                                         "measured_fits",
                                         "predicted_fits",
                                         "bound_by",
                                         "unstated",
                                         "problem"};
  std::string out = csv_row(columns);
  for (const ValidatedRow& row : report.rows) {
    const Json json = row_json(row);
    std::vector<std::string> fields;
    for (const std::string& column : columns) {
      const Json* value = json.find(column);
      fields.push_back(value == nullptr ? "" : csv_field(*value));
    }
    out += csv_row(fields);
  }
  return out;
}

}  // namespace shardsim
