// SPDX-License-Identifier: Apache-2.0
#include "reports/timeline_html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reports/names.hpp"
#include "sim/core/units_text.hpp"
#include "sim/engine/exposed.hpp"

namespace shardsim {
namespace {

/// Moments that a chart of this width can tell apart; finer detail is what --trace is for.
constexpr std::int64_t resolution = 1500;

double seconds(SimTime time) { return time.seconds().base(); }

/// The highest point of each moment, so that no peak is lost.
std::vector<MemoryPoint> thinned(const std::vector<MemoryPoint>& points, SimTime end) {
  std::vector<MemoryPoint> out;
  std::int64_t moment = -1;
  for (const MemoryPoint& point : points) {
    const std::int64_t at = end.picoseconds() > 0 ? static_cast<std::int64_t>(seconds(point.time) / seconds(end) * static_cast<double>(resolution)) : 0;
    if (at != moment) out.push_back(point);
    else if (sum(point.allocated) > sum(out.back().allocated)) out.back() = point;
    moment = at;
  }
  return out;
}

Json point(double x, Json y) { return Json::Object{{"x", x}, {"y", std::move(y)}}; }

/// What a bar of the timeline stands for.
enum class Kind : std::uint8_t { forward, backward, recompute, communication, copy, optimizer, host };
struct KindStyle {
  const char* label;
  const char* color;
};
constexpr std::array<KindStyle, 7> kind_styles{{{"forward", "#56B4E9"},
                                               {"backward", "#0072B2"},
                                               {"recomputation", "#8B5A2B"},
                                               {"communication", "#E69F00"},
                                               {"copies", "#CC79A7"},
                                               {"optimizer", "#009E73"},
                                               {"host", "#999999"}}};

Kind kind_of(const Op& op) {
  if (std::holds_alternative<Communicate>(op.action)) return Kind::communication;
  if (std::holds_alternative<Copy>(op.action)) return Kind::copy;
  if (std::holds_alternative<Update>(op.action)) return Kind::optimizer;
  if (const auto* compute = std::get_if<Compute>(&op.action)) {
    if (op.phase == Phase::step) return Kind::optimizer;
    return compute->pass == Pass::forward ? Kind::forward : compute->pass == Pass::recompute ? Kind::recompute : Kind::backward;
  }
  return Kind::host;
}

/// Bars of one kind on one row; neighbours closer than the resolution become one.
class Bars {
 public:
  explicit Bars(SimTime end) : gap_(SimTime{end.picoseconds() / resolution}) {}

  void add(std::string_view row, SimTime begin, SimTime end, std::string name) {
    if (end <= begin) return;
    if (!bars_.empty() && bars_.back().row == row && begin - bars_.back().end < gap_) {
      Bar& last = bars_.back();
      last.end = std::max(last.end, end);
      ++last.count;
      return;
    }
    bars_.push_back({row, begin, end, std::move(name), 1});
  }

  void append_to(Json::List& out) const {
    for (const Bar& bar : bars_)
      out.emplace_back(Json::Object{{"x", Json::List{seconds(bar.begin), seconds(bar.end)}},
                                    {"y", bar.row},
                                    {"name", bar.count == 1 ? bar.name : fmt::format("{} and {} more", bar.name, bar.count - 1)}});
  }

 private:
  struct Bar {
    std::string_view row;
    SimTime begin, end;
    std::string name;
    int count;
  };
  SimTime gap_;
  std::vector<Bar> bars_;
};

std::vector<std::string> row_names(const Schedule& schedule) {
  std::vector<std::string> rows{"host"};
  for (const Stream& stream : schedule.streams) rows.push_back(stream.name);
  rows.emplace_back("exposed communication");
  return rows;
}

std::vector<HtmlSeries> bars_by_kind(const SimulationResult& result, const std::vector<std::string>& rows) {
  const Schedule& schedule = *result.schedule;
  const SimTime end = result.timeline.end;
  // A merge needs neighbours of one kind on one row, hence one list for each pair.
  std::vector<std::array<Bars, kind_styles.size()>> bars(rows.size(), {Bars(end), Bars(end), Bars(end), Bars(end), Bars(end), Bars(end), Bars(end)});
  for (const HostSlice& slice : result.timeline.host)
    bars[0][static_cast<std::size_t>(Kind::host)].add(rows[0], slice.begin, slice.end, to_text(schedule.at(slice.op).label, schedule));
  for (const Slice& slice : result.timeline.slices) {
    const auto row = static_cast<std::size_t>(slice.stream.index) + 1;
    const Op& op = schedule.at(slice.op);
    bars[row][static_cast<std::size_t>(kind_of(op))].add(rows[row], slice.begin, slice.end, to_text(op.label, schedule));
  }
  std::vector<HtmlSeries> series;
  for (std::size_t kind = 0; kind < kind_styles.size(); ++kind) {
    Json::List data;
    for (const auto& row : bars) row[kind].append_to(data);
    if (!data.empty()) series.push_back({.label = kind_styles[kind].label, .color = kind_styles[kind].color, .data = std::move(data)});
  }
  return series;
}

HtmlSeries exposed_series(const SimulationResult& result, const std::string& row) {
  Bars bars(result.timeline.end);
  for (const TimeSpan& span : exposed_communication(*result.schedule, result.timeline)) bars.add(row, span.begin, span.end, "exposed communication");
  Json::List data;
  bars.append_to(data);
  return {.label = "exposed communication", .color = exposed_color, .data = std::move(data)};
}

}  // namespace

HtmlSection memory_section(const SimulationResult& result) {
  const Memory& memory = result.memory;
  const double end = seconds(result.timeline.end);
  HtmlChart chart{.kind = HtmlChart::Kind::area,
                  .description = fmt::format("Allocated memory by category over the step; the peak is {} in {}, the capacity {}.", to_text(memory.peak),
                                             name_of(memory.peak_phase), to_text(memory.capacity)),
                  .x = {.label = "time in the step", .unit = HtmlAxis::Unit::seconds},
                  .y = {.label = "allocated", .unit = HtmlAxis::Unit::bytes},
                  .stacked = true,
                  .end = end};
  const std::vector<MemoryPoint> points = thinned(memory.timeline, result.timeline.end);
  TextGrid grid{.header = {"Category", "At the peak", "Bytes"}, .right = {false, true, true}, .rows = {}};
  for (std::size_t i = 0; i < category_count; ++i) {
    const std::string name = display_name(static_cast<Category>(i));
    if (memory.at_peak[i] != Bytes{}) grid.rows.push_back({name, to_text(memory.at_peak[i]), grouped(memory.at_peak[i].value())});
    if (std::all_of(points.begin(), points.end(), [&](const MemoryPoint& p) { return p.allocated[i] == Bytes{}; })) continue;
    Json::List data;
    for (const MemoryPoint& p : points) data.push_back(point(seconds(p.time), p.allocated[i].value()));
    chart.series.push_back({.label = name, .color = series_color(i), .data = std::move(data), .stack = "allocated"});
  }
  const auto peak = std::max_element(points.begin(), points.end(), [](const auto& a, const auto& b) { return sum(a.allocated) < sum(b.allocated); });
  if (peak != points.end())
    chart.series.push_back({.label = "peak", .color = "#1b1f24", .data = Json::List{point(seconds(peak->time), memory.peak.value())}, .stack = "peak", .style = "point"});
  chart.series.push_back({.label = "capacity", .color = exposed_color, .data = Json::List{point(0, memory.capacity.value()), point(end, memory.capacity.value())},
                          .stack = "capacity", .style = "dashed"});
  const auto total = [&](const char* name, Bytes bytes) { grid.rows.push_back({name, to_text(bytes), grouped(bytes.value())}); };
  total("allocated", memory.peak);
  total("reserved by the allocator", memory.reserved_peak);
  total("outside the allocator", memory.overhead);
  total("on the device", memory.device_peak);
  total("capacity", memory.capacity);
  return {.title = "Memory of each GPU", .text = fmt::format("The peak is in {}: {}.", name_of(memory.peak_phase), memory.peak_at), .chart = std::move(chart),
          .tables = {std::move(grid)}};
}

HtmlSection timeline_section(const SimulationResult& result) {
  const std::vector<std::string> rows = row_names(*result.schedule);
  HtmlChart chart{.kind = HtmlChart::Kind::timeline,
                  .description = "Rows of the host, of each stream, and of exposed communication, with what runs when. The table under the first chart holds the sums.",
                  .x = {.label = "time in the step", .unit = HtmlAxis::Unit::seconds},
                  .y = {.unit = HtmlAxis::Unit::words},
                  .labels = rows,
                  .series = bars_by_kind(result, rows),
                  .end = seconds(result.timeline.end)};
  chart.series.push_back(exposed_series(result, rows.back()));
  return {.title = "Timeline", .text = "For every operation, write a trace with --trace and open it in Perfetto.", .chart = std::move(chart)};
}

}  // namespace shardsim
