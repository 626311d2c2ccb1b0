// SPDX-License-Identifier: Apache-2.0
#include "reports/html/timeline_bars.hpp"

#include <algorithm>
#include <optional>
#include <tuple>

#include "sim/engine/exposed.hpp"

namespace shardsim {
namespace {

BarKind kind_of(const Op& op) {
  if (std::holds_alternative<Communicate>(op.action)) return BarKind::communication;
  if (std::holds_alternative<Copy>(op.action)) return BarKind::copy;
  if (std::holds_alternative<Update>(op.action)) return BarKind::optimizer;
  if (const auto* compute = std::get_if<Compute>(&op.action)) {
    if (op.phase == Phase::step) return BarKind::optimizer;
    return compute->pass == Pass::forward ? BarKind::forward : compute->pass == Pass::recompute ? BarKind::recompute : BarKind::backward;
  }
  return BarKind::host;
}

/// Bars in the order of time, merged with the last of their row and kind.
class Bars {
 public:
  Bars(const Schedule& schedule, SimTime gap, Merge merge)
      : schedule_(schedule), gap_(gap), merge_(merge), last_(timeline_rows(schedule).size()) {}

  void add(TimelineBar bar) {
    if (bar.end <= bar.begin) return;
    auto& last = last_[bar.row][static_cast<std::size_t>(bar.kind)];
    if (last && joins(bars_[*last], bar)) {
      TimelineBar& before = bars_[*last];
      before.end = std::max(before.end, bar.end);
      ++before.count;
      return;
    }
    last = bars_.size();
    bars_.push_back(bar);
  }

  [[nodiscard]] std::vector<TimelineBar> sorted() && {
    std::stable_sort(bars_.begin(), bars_.end(), [](const TimelineBar& a, const TimelineBar& b) {
      return std::tie(a.kind, a.row, a.begin) < std::tie(b.kind, b.row, b.begin);
    });
    return std::move(bars_);
  }

 private:
  [[nodiscard]] bool joins(const TimelineBar& before, const TimelineBar& bar) const {
    if (bar.begin - before.end >= gap_) return false;
    if (merge_ == Merge::near || !bar.op.valid() || bar.kind == BarKind::host) return true;
    return schedule_.at(before.op).label.unit == schedule_.at(bar.op).label.unit;
  }

  const Schedule& schedule_;
  SimTime gap_;
  Merge merge_;
  std::vector<TimelineBar> bars_;
  std::vector<std::array<std::optional<std::size_t>, bar_styles.size()>> last_;  ///< by row and kind: position in bars_
};

}  // namespace

std::vector<std::string> timeline_rows(const Schedule& schedule) {
  std::vector<std::string> rows{"host"};
  for (const Stream& stream : schedule.streams) rows.push_back(stream.name);
  rows.emplace_back("exposed communication");
  return rows;
}

std::vector<TimelineBar> timeline_bars(const SimulationResult& result, SimTime gap, Merge merge) {
  const Schedule& schedule = *result.schedule;
  Bars bars(schedule, gap, merge);
  for (const HostSlice& slice : result.timeline.host) bars.add({0, BarKind::host, slice.begin, slice.end, slice.op});
  for (const Slice& slice : result.timeline.slices)
    bars.add({static_cast<std::size_t>(slice.stream.index) + 1, kind_of(schedule.at(slice.op)), slice.begin, slice.end, slice.op});
  for (const TimeSpan& span : exposed_communication(schedule, result.timeline))
    bars.add({schedule.streams.size() + 1, BarKind::exposed, span.begin, span.end, OpId{}});
  return std::move(bars).sorted();
}

}  // namespace shardsim
