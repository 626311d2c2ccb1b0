// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/time_split.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

namespace shardsim {
namespace {

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

  void add(std::int32_t communicator, OpId op, SimTime time) {
    OfCommunicator& mine = by_[static_cast<std::size_t>(communicator)];
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

const ReplayOp& replayed(const ReplayProgram& program, OpId op) { return program.ops()[static_cast<std::size_t>(program.find(op))]; }

/// Intervals by begin. One that begins before another of its activity ends makes that one longer: kernels follow on kernels.
class Intervals {
 public:
  void add(Activity activity, SimTime begin, SimTime end) {
    std::size_t& last = last_[static_cast<std::size_t>(activity)];
    if (last < all_.size() && begin <= all_[last].end) {
      all_[last].end = std::max(all_[last].end, end);
      return;
    }
    last = all_.size();
    all_.push_back({activity, begin, end});
  }
  [[nodiscard]] std::vector<Interval> take() && { return std::move(all_); }

 private:
  std::vector<Interval> all_;
  std::array<std::size_t, activity_count> last_{none, none, none, none};  // by activity
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
};

/// What ran on streams, by begin.
std::vector<Interval> intervals_on_streams(const ReplayProgram& program, const Timeline& timeline, CollectiveTimes& collectives) {
  Intervals intervals;
  for (const Slice& slice : timeline.slices) {
    const ReplayOp& op = replayed(program, slice.op);
    intervals.add(op.activity, slice.begin, slice.end);
    if (op.kind == ReplayOp::Kind::collective) collectives.add(op.target, slice.op, slice.end - slice.begin);
  }
  return std::move(intervals).take();
}

/// Puts what ran on the host in its place.
void add_host_updates(const ReplayProgram& program, const Timeline& timeline, std::vector<Interval>& intervals) {
  for (const HostSlice& slice : timeline.host)
    if (replayed(program, slice.op).kind == ReplayOp::Kind::host_update) intervals.push_back({Activity::update, slice.begin, slice.end});
  std::stable_sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
}

void add_host(const RankProgram& program, TimeSplit& split) {
  for (const ReplayOp& op : program.program->ops()) {
    const OpCost& cost = program.cost(op);
    split.host_busy += cost.host;
    if (op.kind != ReplayOp::Kind::host_update) continue;
    split.host_busy += cost.device;
    split.host_updates += cost.host + cost.device;
  }
}

}  // namespace

TimeSplit split_time(const RankProgram& program, const Timeline& timeline) {
  TimeSplit split;
  add_host(program, split);
  CollectiveTimes collectives(program.schedule().communicators.size());
  std::vector<Interval> intervals = intervals_on_streams(*program.program, timeline, collectives);
  if (split.host_updates > SimTime{}) add_host_updates(*program.program, timeline, intervals);
  add_unions(intervals, timeline.end, split);
  collectives.tell(split);
  return split;
}

}  // namespace shardsim
