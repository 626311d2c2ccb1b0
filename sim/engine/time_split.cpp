// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/time_split.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace shardsim {
namespace {

/// In the order of precedence of TimeSplit.
enum class Activity : std::uint8_t { kernel, update, collective, link };
constexpr std::size_t activity_count = 4;

struct Interval {
  Activity activity;
  SimTime begin, end;
};

/// Length of a union of intervals that come by begin.
class Cover {
 public:
  void add(SimTime begin, SimTime end) {
    if (end <= until_) return;
    length_ += end - std::max(begin, until_);
    until_ = end;
  }
  [[nodiscard]] SimTime length() const { return length_; }

 private:
  SimTime length_, until_;
};

Activity activity_of(const Op& op) {
  if (std::holds_alternative<Communicate>(op.action)) return Activity::collective;
  if (std::holds_alternative<Update>(op.action)) return Activity::update;
  const auto* copy = std::get_if<Copy>(&op.action);
  return copy != nullptr && copy->path != CopyPath::device ? Activity::link : Activity::kernel;
}

bool is_host_update(const Op& op) {
  const auto* update = std::get_if<Update>(&op.action);
  return update != nullptr && update->on_host;
}

std::vector<Interval> intervals_of(const Schedule& schedule, const Timeline& timeline) {
  std::vector<Interval> intervals;
  intervals.reserve(timeline.slices.size());
  for (const Slice& slice : timeline.slices) intervals.push_back({activity_of(schedule.at(slice.op)), slice.begin, slice.end});
  const std::size_t on_device = intervals.size();
  for (const HostSlice& slice : timeline.host)
    if (is_host_update(schedule.at(slice.op))) intervals.push_back({Activity::update, slice.begin, slice.end});
  if (intervals.size() != on_device)
    std::stable_sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  return intervals;
}

void add_unions(const std::vector<Interval>& intervals, SimTime end, TimeSplit& split) {
  std::array<Cover, activity_count> up_to, alone;  // of the activities up to one in precedence; of that one
  for (const Interval& interval : intervals) {
    const auto a = static_cast<std::size_t>(interval.activity);
    alone[a].add(interval.begin, interval.end);
    for (std::size_t k = a; k < activity_count; ++k) up_to[k].add(interval.begin, interval.end);
  }
  split.compute = up_to[0].length();
  split.optimizer = up_to[1].length() - up_to[0].length();
  split.exposed = up_to[2].length() - up_to[1].length();
  split.link = up_to[3].length() - up_to[2].length();
  split.idle = end - up_to[3].length();
  split.kernels_busy = up_to[1].length();
  split.communication_busy = alone[static_cast<std::size_t>(Activity::collective)].length();
  split.link_busy = alone[static_cast<std::size_t>(Activity::link)].length();
}

void add_collectives(const Schedule& schedule, const Timeline& timeline, TimeSplit& split) {
  struct OfCommunicator {
    SimTime sum, longest;
    OpId op;
  };
  std::vector<OfCommunicator> by(schedule.communicators.size());
  for (const Slice& slice : timeline.slices) {
    const auto* collective = std::get_if<Communicate>(&schedule.at(slice.op).action);
    if (collective == nullptr) continue;
    const SimTime time = slice.end - slice.begin;
    OfCommunicator& mine = by[static_cast<std::size_t>(collective->communicator.index)];
    mine.sum += time;
    if (mine.op.valid() && time <= mine.longest) continue;
    mine.longest = time;
    mine.op = slice.op;
  }
  SimTime most{-1};
  for (const OfCommunicator& one : by) {
    split.communication += one.sum;
    if (!one.op.valid() || one.sum <= most) continue;
    most = one.sum;
    split.longest_collective = one.op;
  }
}

void add_host(const Schedule& schedule, std::span<const OpCost> costs, TimeSplit& split) {
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (costs[i].host + costs[i].device == SimTime{}) continue;  // allocations: most of a schedule
    split.host_busy += costs[i].host;
    if (!is_host_update(schedule.ops[i])) continue;
    split.host_busy += costs[i].device;
    split.host_updates += costs[i].host + costs[i].device;
  }
}

}  // namespace

TimeSplit split_time(const Schedule& schedule, std::span<const OpCost> costs, const Timeline& timeline) {
  TimeSplit split;
  add_unions(intervals_of(schedule, timeline), timeline.end, split);
  add_collectives(schedule, timeline, split);
  add_host(schedule, costs, split);
  return split;
}

}  // namespace shardsim
