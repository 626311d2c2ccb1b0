// SPDX-License-Identifier: Apache-2.0
#include "reports/verify_report.hpp"

#include <fmt/format.h>

#include "reports/names.hpp"
#include "reports/text.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

std::string off_by(double predicted, double measured) {
  return measured == 0 ? "" : fmt::format("{:+.1f} %", 100 * (predicted / measured - 1));
}
std::string off_by(Bytes predicted, Bytes measured) {
  return off_by(static_cast<double>(predicted.value()), static_cast<double>(measured.value()));
}

TextGrid traffic_grid(const Verification& v) {
  TextGrid grid{.header = {"Collective", "Elements", "Dtype", "Ranks", "Predicted", "Measured", "A call, predicted", "measured"},
                .right = {false, true, false, true, true, true, true, true},
                .rows = {}};
  for (const TrafficDifference& row : v.traffic)
    grid.rows.push_back({display_name(row.shape.kind), grouped(row.shape.elements), std::string(name_of(row.shape.dtype)),
                         std::to_string(row.shape.ranks), grouped(row.predicted),
                         grouped(row.measured) + (row.predicted == row.measured ? "" : " *"),
                         row.predicted_time ? to_text(*row.predicted_time) : "", row.measured_time ? to_text(*row.measured_time) : ""});
  return grid;
}

TextGrid figures_grid(const Verification& v) {
  TextGrid grid{.header = {"", "Predicted", "Measured", "Prediction is off by"}, .right = {false, true, true, true}, .rows = {}};
  const auto add = [&](const char* what, Bytes predicted, const std::optional<Bytes>& measured) {
    if (measured) grid.rows.push_back({what, to_text(predicted), to_text(*measured), off_by(predicted, *measured)});
  };
  add("peak allocated", v.predicted_peak, v.measured_peak);
  add("peak reserved", v.predicted_reserved, v.measured_reserved);
  if (v.measured_communication)
    grid.rows.push_back({"collectives, summed", to_text(v.predicted_communication), to_text(*v.measured_communication),
                         off_by(v.predicted_communication.base(), v.measured_communication->base())});
  if (v.measured_step)
    grid.rows.push_back(
        {"step", to_text(v.predicted_step), to_text(*v.measured_step), off_by(v.predicted_step.base(), v.measured_step->base())});
  return grid;
}

std::string verdict(const Verification& v) {
  if (!v.same_traffic) return "The run sends something else than predicted (rows with *).";
  if (v.same_order) return "Every collective of the step is as predicted: kind, elements, dtype, group and order.";
  return fmt::format("The collectives are those predicted, in another order from number {} on.", *v.first_out_of_order);
}

std::string cause_text(const Cause& cause) {
  std::string text = fmt::format("{:.0f} %: {}", 100 * cause.explains, cause.text);
  for (const std::string& assignment : cause.assignments) text += fmt::format("\n--set '{}'", assignment);
  return text;
}

}  // namespace

std::string verification_table(const Verification& v) {
  std::string out =
      fmt::format("{}, recorded with {}\n  {}\n\n{}", v.scenario, v.library, wrapped(verdict(v), 2, 2), traffic_grid(v).text());
  if (const TextGrid figures = figures_grid(v); !figures.rows.empty()) out += "\n" + figures.text();
  if (v.causes.empty()) return out;
  out += "\nWhat explains the difference\n";
  for (const Cause& cause : v.causes) {
    std::string lines = cause_text(cause);
    for (std::size_t at = lines.find('\n'); at != std::string::npos; at = lines.find('\n', at + 6)) lines.replace(at, 1, "\n      ");
    out += "  " + lines + "\n";
  }
  return out;
}

Json verification_json(const Verification& v) {
  Json json;
  json.add("schema", "shardsim.verify/1");
  json.add("scenario", v.scenario);
  json.add("library", v.library);
  json.add("same_traffic", v.same_traffic);
  json.add("same_order", v.same_order);
  const auto optional_bytes = [](const std::optional<Bytes>& b) { return b ? Json(b->value()) : Json(); };
  const auto optional_seconds = [](const std::optional<Seconds>& s) { return s ? Json(s->base()) : Json(); };
  Json::List traffic;
  for (const TrafficDifference& row : v.traffic)
    traffic.push_back(Json::Object{{"collective", name_of(row.shape.kind)},
                                   {"elements", row.shape.elements},
                                   {"dtype", name_of(row.shape.dtype)},
                                   {"ranks", row.shape.ranks},
                                   {"stride", row.shape.stride},
                                   {"predicted_calls", row.predicted},
                                   {"measured_calls", row.measured},
                                   {"predicted_s", optional_seconds(row.predicted_time)},
                                   {"measured_s", optional_seconds(row.measured_time)}});
  json.add("traffic", std::move(traffic));
  json.add("memory", Json::Object{{"predicted_peak_bytes", v.predicted_peak.value()},
                                  {"measured_peak_bytes", optional_bytes(v.measured_peak)},
                                  {"predicted_reserved_peak_bytes", v.predicted_reserved.value()},
                                  {"measured_reserved_peak_bytes", optional_bytes(v.measured_reserved)}});
  json.add("step", Json::Object{{"predicted_s", v.predicted_step.base()},
                                {"measured_s", optional_seconds(v.measured_step)},
                                {"predicted_communication_s", v.predicted_communication.base()},
                                {"measured_communication_s", optional_seconds(v.measured_communication)}});
  Json::List causes;
  for (const Cause& cause : v.causes)
    causes.push_back(Json::Object{
        {"cause", cause.text}, {"set", Json::List(cause.assignments.begin(), cause.assignments.end())}, {"explains", cause.explains}});
  json.add("causes", std::move(causes));
  json.add("agree", v.agrees());
  return json;
}

HtmlPage verification_page(const Verification& v) {
  HtmlPage page{.title = "Prediction and run", .data = verification_json(v)};
  page.lines = {v.scenario, "recorded with " + v.library, verdict(v)};
  page.tiles.push_back({.label = "traffic", .value = v.same_traffic ? "as predicted" : "differs", .mood = v.same_traffic ? "good" : "bad"});
  if (v.measured_peak)
    page.tiles.push_back({.label = "peak allocated", .value = to_text(*v.measured_peak), .note = "predicted " + to_text(v.predicted_peak)});
  if (v.measured_step)
    page.tiles.push_back({.label = "step", .value = to_text(*v.measured_step), .note = "predicted " + to_text(v.predicted_step)});
  if (!v.causes.empty()) {
    TextGrid grid{.header = {"Explains", "Cause", "Change of the scenario"}, .right = {true, false, false}, .rows = {}};
    for (const Cause& cause : v.causes) {
      std::string set;
      for (const std::string& assignment : cause.assignments) set += (set.empty() ? "" : "; ") + assignment;
      grid.rows.push_back({fmt::format("{:.0f} %", 100 * cause.explains), cause.text, set});
    }
    page.sections.push_back({.title = "What explains the difference", .tables = {std::move(grid)}});
  }
  if (TextGrid figures = figures_grid(v); !figures.rows.empty())
    page.sections.push_back({.title = "Memory and time", .tables = {std::move(figures)}});
  page.sections.push_back(
      {.title = "Collectives of a step", .text = "Rows with * differ in their number of calls.", .tables = {traffic_grid(v)}});
  return page;
}

}  // namespace shardsim
