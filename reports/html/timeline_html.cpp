// SPDX-License-Identifier: Apache-2.0
#include "reports/html/timeline_html.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/names.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

/// Moments that a chart of this width can tell apart; finer detail is what --trace is for.
constexpr std::int64_t resolution = 1500;

double seconds(SimTime time) { return time.seconds().base(); }

struct MemoryState {
  SimTime time;
  ByCategory allocated;
};

/// The highest state of each moment, so that no peak is lost.
std::vector<MemoryState> thinned(const Memory& memory, SimTime end) {
  std::vector<MemoryState> out;
  std::int64_t moment = -1;
  visit_states(memory, [&](SimTime time, OpId, const ByCategory& allocated) {
    const std::int64_t at =
        end.picoseconds() > 0 ? static_cast<std::int64_t>(seconds(time) / seconds(end) * static_cast<double>(resolution)) : 0;
    if (at != moment)
      out.push_back({time, allocated});
    else if (sum(allocated) > sum(out.back().allocated))
      out.back() = {time, allocated};
    moment = at;
  });
  return out;
}

Json point(double x, Json y) { return Json::Object{{"x", x}, {"y", std::move(y)}}; }

/// Bars by kind; neighbours closer than the resolution become one.
std::vector<HtmlSeries> bars_by_kind(const SimulationResult& result, const std::vector<std::string>& rows) {
  const Schedule& schedule = *result.schedule;
  std::vector<HtmlSeries> series;
  for (const TimelineBar& bar : timeline_bars(result, SimTime{result.timeline.end.picoseconds() / resolution}, Merge::near)) {
    const BarStyle& style = style_of(bar.kind);
    if (series.empty() || series.back().label != style.label)
      series.push_back({.label = style.label, .color = style.color, .data = Json::List{}});
    const std::string name = bar.op.valid() ? to_text(schedule.at(bar.op).label, schedule) : style.label;
    series.back().data.add(Json::Object{{"x", Json::List{seconds(bar.begin), seconds(bar.end)}},
                                        {"y", rows[bar.row]},
                                        {"name", bar.count == 1 ? name : fmt::format("{} and {} more", name, bar.count - 1)}});
  }
  return series;
}

/// How long each row is at work; operations of a stream follow one another.
TextGrid busy_grid(const SimulationResult& result, const std::vector<std::string>& rows) {
  std::vector<SimTime> busy(rows.size());
  for (const TimelineBar& bar : timeline_bars(result, SimTime{}, Merge::near)) busy[bar.row] += bar.end - bar.begin;
  TextGrid grid{.header = {"Row", "At work", "Share of the step"}, .right = {false, true, true}, .rows = {}};
  for (std::size_t i = 0; i < rows.size(); ++i)
    grid.rows.push_back(
        {rows[i], to_text(busy[i].seconds()),
         result.timeline.end > SimTime{} ? fmt::format("{:.1f} %", 100 * seconds(busy[i]) / seconds(result.timeline.end)) : ""});
  return grid;
}

}  // namespace

HtmlSection memory_section(const SimulationResult& result) {
  const Memory& memory = result.memory;
  const double end = seconds(result.timeline.end);
  HtmlChart chart{.kind = HtmlChart::Kind::area,
                  .description = fmt::format("Allocated memory by category over the step; the peak is {} in {}, the capacity {}.",
                                             to_text(memory.peak), name_of(memory.peak_phase), to_text(memory.capacity)),
                  .x = {.label = "time in the step", .unit = HtmlAxis::Unit::seconds},
                  .y = {.label = "allocated", .unit = HtmlAxis::Unit::bytes},
                  .stacked = true,
                  .end = end};
  const std::vector<MemoryState> points = thinned(memory, result.timeline.end);
  TextGrid grid{.header = {"Category", "At the peak", "Bytes"}, .right = {false, true, true}, .rows = {}};
  for (std::size_t i = 0; i < category_count; ++i) {
    const std::string name = display_name(static_cast<Category>(i));
    if (memory.at_peak[i] != Bytes{}) grid.rows.push_back({name, to_text(memory.at_peak[i]), grouped(memory.at_peak[i].value())});
    if (std::all_of(points.begin(), points.end(), [&](const MemoryState& p) { return p.allocated[i] == Bytes{}; })) continue;
    Json::List data;
    for (const MemoryState& p : points) data.push_back(point(seconds(p.time), p.allocated[i].value()));
    chart.series.push_back({.label = name, .color = series_color(i), .data = std::move(data), .stack = "allocated"});
  }
  const auto peak =
      std::max_element(points.begin(), points.end(), [](const auto& a, const auto& b) { return sum(a.allocated) < sum(b.allocated); });
  if (peak != points.end())
    chart.series.push_back({.label = "peak",
                            .color = "#1b1f24",
                            .data = Json::List{point(seconds(peak->time), memory.peak.value())},
                            .stack = "peak",
                            .style = "point"});
  chart.series.push_back({.label = "capacity",
                          .color = exposed_color,
                          .data = Json::List{point(0, memory.capacity.value()), point(end, memory.capacity.value())},
                          .stack = "capacity",
                          .style = "dashed"});
  const auto total = [&](const char* name, Bytes bytes) { grid.rows.push_back({name, to_text(bytes), grouped(bytes.value())}); };
  total("allocated", memory.peak);
  total("reserved by the allocator", memory.reserved_peak);
  total("outside the allocator", memory.overhead);
  total("on the device", memory.device_peak);
  total("capacity", memory.capacity);
  return {.title = "Memory of each GPU",
          .text = fmt::format("The peak is in {}: {}.", name_of(memory.peak_phase), memory.peak_at),
          .chart = std::move(chart),
          .tables = {std::move(grid)}};
}

HtmlSection timeline_section(const SimulationResult& result) {
  const std::vector<std::string> rows = timeline_rows(*result.schedule);
  HtmlChart chart{
      .kind = HtmlChart::Kind::timeline,
      .description =
          "Rows of the host, of each stream, and of exposed communication, with what runs when. The table beside it holds the sums.",
      .x = {.label = "time in the step", .unit = HtmlAxis::Unit::seconds},
      .y = {.unit = HtmlAxis::Unit::words},
      .labels = rows,
      .series = bars_by_kind(result, rows),
      .end = seconds(result.timeline.end)};
  return {.title = "Timeline",
          .text = "For every operation, write a trace with --trace and open it in Perfetto.",
          .chart = std::move(chart),
          .tables = {busy_grid(result, rows)}};
}

}  // namespace shardsim
