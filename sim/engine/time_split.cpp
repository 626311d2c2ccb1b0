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

/// How long each communicator's collectives run, and which is the longest.
class CollectiveTimes {
 public:
  explicit CollectiveTimes(std::size_t communicators) : by_(communicators) {}

  void add(const Communicate& collective, OpId op, SimTime time) {
    OfCommunicator& mine = by_[static_cast<std::size_t>(collective.communicator.index)];
    mine.sum += time;
    if (mine.op.valid() && time <= mine.longest) return;
    mine.longest = time;
    mine.op = op;
  }

  void tell(TimeSplit& split) const {
    SimTime most{-1};
    for (const OfCommunicator& one : by_) {
      split.communication += one.sum;
      if (!one.op.valid() || one.sum <= most) continue;
      most = one.sum;
      split.longest_collective = one.op;
    }
  }

 private:
  struct OfCommunicator {
    SimTime sum, longest;
    OpId op;
  };
  std::vector<OfCommunicator> by_;
};

/// What ran on streams, by begin. The one walk over the ops: they are far apart in memory.
std::vector<Interval> intervals_on_streams(const Schedule& schedule, const Timeline& timeline, CollectiveTimes& collectives) {
  std::vector<Interval> intervals;
  intervals.reserve(timeline.slices.size());
  for (const Slice& slice : timeline.slices) {
    const Op& op = schedule.at(slice.op);
    intervals.push_back({activity_of(op), slice.begin, slice.end});
    if (const auto* collective = std::get_if<Communicate>(&op.action)) collectives.add(*collective, slice.op, slice.end - slice.begin);
  }
  return intervals;
}

/// Puts what ran on the host in its place.
void add_host_updates(const Schedule& schedule, const Timeline& timeline, std::vector<Interval>& intervals) {
  for (const HostSlice& slice : timeline.host)
    if (is_host_update(schedule.at(slice.op))) intervals.push_back({Activity::update, slice.begin, slice.end});
  std::stable_sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
}

void add_host(const Schedule& schedule, std::span<const OpCost> costs, TimeSplit& split) {
  for (std::size_t i = 0; i < costs.size(); ++i) {
    const OpCost& cost = costs[i];
    split.host_busy += cost.host;
    // Of few ops is there a need to look: kernels, collectives and what costs nothing are no updates on the host.
    if (cost.compute || cost.collective || cost.host + cost.device == SimTime{} || !is_host_update(schedule.ops[i])) continue;
    split.host_busy += cost.device;
    split.host_updates += cost.host + cost.device;
  }
}

}  // namespace

TimeSplit split_time(const Schedule& schedule, std::span<const OpCost> costs, const Timeline& timeline) {
  TimeSplit split;
  add_host(schedule, costs, split);
  CollectiveTimes collectives(schedule.communicators.size());
  std::vector<Interval> intervals = intervals_on_streams(schedule, timeline, collectives);
  if (split.host_updates > SimTime{}) add_host_updates(schedule, timeline, intervals);
  add_unions(intervals, timeline.end, split);
  collectives.tell(split);
  return split;
}

}  // namespace shardsim
