// SPDX-License-Identifier: Apache-2.0
#include "reports/html/simulate_html.hpp"

#include <fmt/format.h>

#include "reports/html/parts.hpp"
#include "reports/html/timeline_html.hpp"
#include "reports/names.hpp"
#include "sim/base/units_text.hpp"
#include "studies/simulate/simulate_json.hpp"

namespace shardsim {
namespace {

std::vector<HtmlTile> tiles(const SimulationResult& result) {
  const Memory& memory = result.memory;
  const StepTime& step = result.step;
  return {{.label = "Step", .value = to_text(step.time), .note = "bound by " + step.bound_by},
          {.label = "Tokens/s per GPU",
           .value = grouped(static_cast<std::int64_t>(step.tokens_per_second_per_gpu)),
           .note = grouped(static_cast<std::int64_t>(step.tokens_per_second)) + " on all"},
          {.label = "MFU", .value = percentage(step.mfu), .note = "HFU " + percentage(step.hfu)},
          {.label = "Memory on the device",
           .value = to_text(memory.device_peak),
           .note = fmt::format("{} {}", memory.fits ? "fits" : "does not fit", to_text(memory.capacity)),
           .mood = memory.fits ? "good" : "bad"},
          {.label = "Sent by each rank",
           .value = to_text_decimal(result.traffic.total),
           .note = fmt::format("{:.2f} Ψ", result.traffic.psi_units)},
          {.label = "Exposed communication",
           .value = to_text(step.exposed_communication),
           .note = fmt::format("of {} in all", to_text(step.communication))}};
}

HtmlSection step_section(const StepTime& step) {
  HtmlChart chart{.kind = HtmlChart::Kind::bar,
                  .description = "One bar of the step's parts: compute, exposed communication, optimizer, waiting for the host.",
                  .x = {.label = "time", .unit = HtmlAxis::Unit::seconds},
                  .y = {.unit = HtmlAxis::Unit::words},
                  .labels = {"step"},
                  .stacked = true,
                  .lying = true,
                  .low = true};
  TextGrid grid{.header = {"Part", "Time", "Share"}, .right = {false, true, true}, .rows = {}};
  for (const TimePart& part : time_parts(step)) {
    chart.series.push_back({.label = part.name, .color = part.color, .data = Json::List{part.time.base()}});
    grid.rows.push_back({part.name, to_text(part.time), step.time.base() > 0 ? percentage(part.time / step.time) : ""});
  }
  grid.rows.push_back({"step", to_text(step.time), ""});
  return {.title = "Where the time goes", .text = step.flop_convention, .chart = std::move(chart), .tables = {std::move(grid)}};
}

HtmlSection traffic_section(const Traffic& traffic) {
  HtmlChart chart{.kind = HtmlChart::Kind::bar,
                  .description = "Two bars of the bytes that each rank sends: this framework by collective, and what the papers count.",
                  .x = {.label = "sent by each rank in one step", .unit = HtmlAxis::Unit::traffic},
                  .y = {.unit = HtmlAxis::Unit::words},
                  .labels = {"framework", "textbook"},
                  .stacked = true,
                  .lying = true,
                  .low = true};
  TextGrid grid{.header = {"Collective", "Sent by each rank"}, .right = {false, true}, .rows = {}};
  for (std::size_t i = 0; i < all_collectives.size(); ++i) {
    const Bytes sent = traffic.sent_per_rank[i];
    if (sent == Bytes{}) continue;
    const std::string name = display_name(all_collectives[i]);
    chart.series.push_back({.label = name, .color = series_color(i), .data = Json::List{sent.value(), 0}});
    grid.rows.push_back({name, grouped(sent.value())});
  }
  chart.series.push_back({.label = "textbook", .color = "#999999", .data = Json::List{0, traffic.textbook.value()}});
  grid.rows.push_back({"total", grouped(traffic.total.value())});
  grid.rows.push_back({"textbook", grouped(traffic.textbook.value())});

  TextGrid calls{.header = {"Group", "Collective", "Dtype", "Payload", "Calls", "Sent by each rank", "Algorithm", "Time from"},
                 .right = {false, false, false, true, true, true, false, false},
                 .rows = {}};
  for (const TrafficRow& row : traffic.by_group)
    if (!row.control)
      calls.rows.push_back({row.group, display_name(row.collective), std::string(name_of(row.dtype)), grouped(row.payload.value()),
                            grouped(row.calls), grouped(row.sent_per_rank.value()), row.algorithm, row.cost_model});
  const std::string why =
      traffic.textbook_differs_because.empty() ? "" : "Differs from the textbook: " + traffic.textbook_differs_because + ".";
  return {.title = "Traffic", .text = why, .chart = std::move(chart), .tables = {std::move(grid), std::move(calls)}};
}

}  // namespace

HtmlPage simulate_page(const SimulationResult& result) {
  const Schedule& schedule = *result.schedule;
  HtmlPage page{.title = result.scenario,
                .lines = {fmt::format("{}, {} semantics, on {} GPUs. {}", schedule.strategy, schedule.semantics, grouped(result.world_size),
                                      schedule.library),
                          fmt::format("{}: {} parameters, {} trainable", result.model_name, grouped(result.parameters.value()),
                                      grouped(result.trainable_parameters.value()))},
                .tiles = tiles(result),
                .sections = {step_section(result.step), memory_section(result), timeline_section(result), traffic_section(result.traffic)},
                .warnings = result.warnings,
                .data = simulate_json(result)};
  if (result.assumed) page.sections.push_back(assumed_section(*result.assumed));
  return page;
}

}  // namespace shardsim
