// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "reports/comparison_report.hpp"
#include "reports/html/parts.hpp"
#include "reports/html/timeline_html.hpp"
#include "reports/names.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

using Results = std::vector<SimulationResult>;

/// Bars from left to right, one for each strategy.
HtmlChart bars(const Results& results, HtmlAxis axis, std::string description) {
  HtmlChart chart{.kind = HtmlChart::Kind::bar,
                  .description = std::move(description),
                  .x = std::move(axis),
                  .y = {.unit = HtmlAxis::Unit::words},
                  .stacked = true,
                  .lying = true};
  for (const SimulationResult& r : results) chart.labels.push_back(r.schedule->strategy);
  return chart;
}

HtmlSection time_section(const Results& results) {
  const SimulationResult& first = results.front();
  HtmlChart chart = bars(results, {.label = "time of one step", .unit = HtmlAxis::Unit::seconds},
                         fmt::format("The time of one step by strategy, exposed communication apart; {} is the fastest with {}.",
                                     first.schedule->strategy, to_text(first.step.time)));
  for (const TimePart& part : time_parts(first.step))
    chart.series.push_back({.label = part.name, .color = part.color, .data = Json::List{}});
  TextGrid grid{.header = {"Strategy", "Step", "Compute", "Exposed", "Optimizer", "Host", "Exposed share", "tok/s/GPU", "MFU", "Bound by"},
                .right = {false, true, true, true, true, true, true, true, true, false},
                .rows = {}};
  for (const SimulationResult& r : results) {
    std::vector<std::string> row{r.schedule->strategy, to_text(r.step.time)};
    const auto parts = time_parts(r.step);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      chart.series[i].data.add(Json(parts[i].time.base()));
      row.push_back(to_text(parts[i].time));
    }
    row.insert(row.end(), {percentage(r.step.exposed_communication / r.step.time),
                           grouped(static_cast<std::int64_t>(r.step.tokens_per_second_per_gpu)), percentage(r.step.mfu), r.step.bound_by});
    grid.rows.push_back(std::move(row));
  }
  return {.title = "Step time", .text = "Fastest first.", .chart = std::move(chart), .tables = {std::move(grid)}};
}

HtmlSection memory_bars(const Results& results) {
  const Bytes capacity = results.front().memory.capacity;
  HtmlChart chart =
      bars(results, {.label = "on the device at the peak", .unit = HtmlAxis::Unit::bytes},
           fmt::format("The peak of memory on the device by strategy and category, against the capacity of {}.", to_text(capacity)));
  for (const MemoryPart& part : memory_parts(results.front().memory))
    chart.series.push_back({.label = part.name, .color = part.color, .data = Json::List{}});
  TextGrid grid{.header = {"Strategy", "On the device", "Capacity", "Fits", "Allocated", "Peak in"},
                .right = {false, true, true, false, true, false},
                .rows = {}};
  Json::List line;
  for (const SimulationResult& r : results) {
    const auto parts = memory_parts(r.memory);
    for (std::size_t i = 0; i < parts.size(); ++i) chart.series[i].data.add(Json(parts[i].bytes.value()));
    line.emplace_back(r.memory.capacity.value());
    grid.rows.push_back({r.schedule->strategy, to_text(r.memory.device_peak), to_text(r.memory.capacity), r.memory.fits ? "yes" : "no",
                         to_text(r.memory.peak), std::string(name_of(r.memory.peak_phase))});
  }
  std::erase_if(chart.series, [](const HtmlSeries& s) {
    const auto& values = *s.data.as<Json::List>();
    return std::all_of(values.begin(), values.end(), [](const Json& v) { return *v.as<std::int64_t>() == 0; });
  });
  chart.series.push_back({.label = "capacity", .color = exposed_color, .data = std::move(line), .stack = "capacity", .style = "dashed"});
  return {.title = "Memory of each GPU",
          .text = "What a device holds at the peak, and its capacity.",
          .chart = std::move(chart),
          .tables = {std::move(grid)}};
}

HtmlSection traffic_bars(const Results& results) {
  HtmlChart chart = bars(results, {.label = "sent by each rank in one step", .unit = HtmlAxis::Unit::traffic},
                         "The bytes that each rank sends by strategy and collective; a mark shows what the papers count.");
  TextGrid grid{.header = {"Strategy", "Sent by each rank", "Ψ", "Textbook", "Differs because"},
                .right = {false, true, true, true, false},
                .rows = {}};
  for (std::size_t c = 0; c < all_collectives.size(); ++c) {
    if (std::all_of(results.begin(), results.end(), [&](const SimulationResult& r) { return r.traffic.sent_per_rank[c] == Bytes{}; }))
      continue;
    Json::List sent;
    for (const SimulationResult& r : results) sent.emplace_back(r.traffic.sent_per_rank[c].value());
    chart.series.push_back({.label = display_name(all_collectives[c]), .color = series_color(c), .data = std::move(sent)});
  }
  Json::List textbook;
  for (const SimulationResult& r : results) {
    textbook.emplace_back(r.traffic.textbook.value());
    grid.rows.push_back({r.schedule->strategy, grouped(r.traffic.total.value()), fmt::format("{:.2f}", r.traffic.psi_units),
                         grouped(r.traffic.textbook.value()), r.traffic.textbook_differs_because});
  }
  chart.series.push_back({.label = "textbook", .color = "#1b1f24", .data = std::move(textbook), .stack = "textbook", .style = "mark"});
  return {.title = "Traffic", .chart = std::move(chart), .tables = {std::move(grid)}};
}

HtmlSection crossover_section(const std::vector<Crossover>& crossovers) {
  TextGrid grid{.header = {"From micro-batch", "Tokens per GPU", "Faster from there", "Faster below", "Both fit"},
                .right = {true, true, false, false, false},
                .rows = {}};
  for (const Crossover& c : crossovers)
    grid.rows.push_back({grouped(c.micro_batch), grouped(c.tokens_per_gpu), c.from, c.below, c.fits ? "yes" : "no"});
  return {
      .title = "Where the order changes", .text = "Micro-batches at which one strategy overtakes another.", .tables = {std::move(grid)}};
}

std::vector<HtmlTile> comparison_tiles(const Results& results) {
  const SimulationResult& fastest = results.front();
  std::vector<HtmlTile> tiles{{.label = "Fastest", .value = fastest.schedule->strategy, .note = to_text(fastest.step.time) + " a step"}};
  const auto fits = std::find_if(results.begin(), results.end(), [](const SimulationResult& r) { return r.memory.fits; });
  if (fits == results.end())
    tiles.push_back({.label = "Fastest that fits", .value = "none", .note = "of " + to_text(fastest.memory.capacity), .mood = "bad"});
  else
    tiles.push_back(
        {.label = "Fastest that fits", .value = fits->schedule->strategy, .note = to_text(fits->step.time) + " a step", .mood = "good"});
  const auto by = [&](auto figure) -> const SimulationResult& {
    return *std::min_element(results.begin(), results.end(),
                             [&](const SimulationResult& a, const SimulationResult& b) { return figure(a) < figure(b); });
  };
  const SimulationResult& leanest = by([](const SimulationResult& r) { return r.memory.device_peak; });
  tiles.push_back(
      {.label = "Least memory", .value = leanest.schedule->strategy, .note = to_text(leanest.memory.device_peak) + " on the device"});
  const SimulationResult& quietest = by([](const SimulationResult& r) { return r.traffic.total; });
  tiles.push_back({.label = "Least traffic",
                   .value = quietest.schedule->strategy,
                   .note = to_text_decimal(quietest.traffic.total) + " sent by each rank"});
  return tiles;
}

}  // namespace

HtmlPage comparison_page(const Comparison& comparison) {
  HtmlPage page{.title = "Strategies", .data = comparison_json(comparison)};
  for (const NotRun& n : comparison.not_run) page.warnings.push_back(fmt::format("{} left out: {}", n.strategy, n.why));
  if (comparison.results.empty()) {
    page.lines = {"No strategy can run this job."};
    return page;
  }
  const SimulationResult& first = comparison.results.front();
  page.title = "Strategies for " + first.scenario;
  page.lines = {
      fmt::format("{}: {} parameters on {} GPUs", first.model_name, grouped(first.parameters.value()), grouped(first.world_size))};
  page.tiles = comparison_tiles(comparison.results);
  page.sections = {time_section(comparison.results), memory_bars(comparison.results), traffic_bars(comparison.results)};
  if (!comparison.crossovers.empty()) page.sections.push_back(crossover_section(comparison.crossovers));
  page.sections.push_back(assumed_section(comparison.assumed));
  const auto warnings = comparison.warnings();
  page.warnings.insert(page.warnings.end(), warnings.begin(), warnings.end());
  return page;
}

}  // namespace shardsim
