// SPDX-License-Identifier: Apache-2.0
// The event loop: starts and ends what the ranks' queues hold, in the order of simulated time.
//
// No decision depends on the order in which events of one instant are handled: queues are first-in first-out and resources are shared
// fairly. That is what makes the result independent of how the ranks and streams are numbered.
#include "sim/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "sim/engine/fair_share.hpp"
#include "sim/engine/rank_queues.hpp"

namespace shardsim {
namespace {

constexpr Picoseconds never = std::numeric_limits<Picoseconds>::max();

/// Something that takes device time: the head of a stream, or the collective of a meeting.
struct Activity {
  bool running = false;            ///< else it waits for its time, or there is none
  Picoseconds since = 0;           ///< `remaining` is as of this time
  Picoseconds remaining = 0;       ///< at full speed
  double speed = 1;
  std::size_t flow = 0;            ///< while it runs: its place in the sharing of resources
};

struct Rank {
  RankQueues queues;
  std::size_t first_activity = 0;              ///< of stream 0
  std::vector<std::size_t> meeting_of;         ///< by communicator
  std::vector<bool> arrived;                   ///< by stream: the head is a collective that waits for, or runs in, its meeting
  std::int32_t collectives = 0;                ///< running
};

/// The queue of one communicator over all programs that have it. One collective at a time.
struct Meeting {
  struct Member {
    std::size_t rank, stream;
  };
  std::string name;
  std::size_t size = 0;                        ///< programs that take part
  std::vector<Member> present;
  std::int32_t turn = 0;                       ///< collectives done
  Picoseconds ready = 0, duration = 0;         ///< of the collective that gathers
};

class Replay {
 public:
  Replay(std::span<const RankProgram> programs, const Machine& machine)
      : shares_(programs.size() * resource_count), overlap_speed_(1 / (1 + machine.overlap_slowdown)) {
    ranks_.reserve(programs.size());
    for (const RankProgram& program : programs) add(program);
    for (Meeting& meeting : meetings_) meeting.present.reserve(meeting.size);
    std::size_t count = meetings_.size();
    for (Rank& rank : ranks_) {
      rank.first_activity = count;
      count += rank.queues.streams();
    }
    activities_.resize(count);
    due_.assign(count, never);
  }

  std::vector<Timeline> run() && {
    for (std::size_t r = 0; r < ranks_.size(); ++r) advance(r);
    for (;;) {
      const Picoseconds now = *std::min_element(due_.begin(), due_.end());
      if (now == never) break;
      handle_meetings(now);
      for (std::size_t r = 0; r < ranks_.size(); ++r) handle_streams(r, now);
      if (std::exchange(mix_changed_, false)) retune(now);
    }
    check_finished();
    std::vector<Timeline> timelines;
    timelines.reserve(ranks_.size());
    for (Rank& rank : ranks_) timelines.push_back(std::move(rank.queues).take_timeline());
    return timelines;
  }

 private:
  void add(const RankProgram& program) {
    Rank& rank = ranks_.emplace_back(Rank{.queues = RankQueues(program), .meeting_of = {}, .arrived = {}});
    rank.arrived.resize(rank.queues.streams());
    for (const Communicator& communicator : program.schedule->communicators) {
      rank.meeting_of.push_back(meeting_named(communicator.name));
      ++meetings_[rank.meeting_of.back()].size;
    }
  }

  std::size_t meeting_named(const std::string& name) {
    const auto found = std::find_if(meetings_.begin(), meetings_.end(), [&](const Meeting& m) { return m.name == name; });
    if (found != meetings_.end()) return static_cast<std::size_t>(found - meetings_.begin());
    meetings_.push_back({.name = name, .present = {}});
    return meetings_.size() - 1;
  }

  // Queues -------------------------------------------------------------------------------------------------------------------------

  /// Lets the host and the idle streams of a rank go as far as what is done by now allows.
  void advance(std::size_t r) {
    Rank& rank = ranks_[r];
    for (bool again = true; again;) {
      again = rank.queues.advance_host();
      for (std::size_t s = 0; s < rank.queues.streams(); ++s)
        if (rank.queues.head(s) >= 0 && due_[rank.first_activity + s] == never && !rank.arrived[s]) again |= advance_stream(r, s);
    }
  }

  /// Schedules the head of an idle stream. Returns whether waits were passed on the way, which may free others.
  bool advance_stream(std::size_t r, std::size_t s) {
    Rank& rank = ranks_[r];
    const bool passed = rank.queues.pass_waits(s);
    const std::int32_t op = rank.queues.head(s);
    if (op < 0 || rank.queues.issued(op).wait) return passed;
    if (rank.queues.issued(op).collective) arrive(r, s, op);
    else schedule(rank.first_activity + s, rank.queues.ready(s), rank.queues.cost(op).device.picoseconds());
    return passed;
  }

  void arrive(std::size_t r, std::size_t s, std::int32_t op) {
    Rank& rank = ranks_[r];
    const Issued& issued = rank.queues.issued(op);
    const std::size_t m = rank.meeting_of[static_cast<std::size_t>(issued.target)];
    Meeting& meeting = meetings_[m];
    if (issued.turn != meeting.turn) return;  // its communicator is busy with an earlier one
    if (!meeting.present.empty()) check_match(meeting, rank.queues, op);
    rank.arrived[s] = true;
    meeting.ready = std::max(meeting.ready, rank.queues.ready(s));
    meeting.duration = std::max(meeting.duration, rank.queues.cost(op).device.picoseconds());
    meeting.present.push_back({r, s});
    if (meeting.present.size() == meeting.size) schedule(m, meeting.ready, meeting.duration);
  }

  void check_match(const Meeting& meeting, const RankQueues& mine, std::int32_t op) const {
    const RankQueues& theirs = ranks_[meeting.present.front().rank].queues;
    const Op& a = mine.schedule().at(OpId{op});
    const Op& b = theirs.schedule().at(OpId{theirs.head(meeting.present.front().stream)});
    const auto& x = std::get<Communicate>(a.action);
    const auto& y = std::get<Communicate>(b.action);
    if (x.kind == y.kind && x.dtype == y.dtype && x.payload == y.payload) return;
    throw std::logic_error(fmt::format("collective {} on communicator {} is {} for one program and {} for another", meeting.turn,
                                       meeting.name, to_text(a.label, mine.schedule()), to_text(b.label, theirs.schedule())));
  }

  // Events -------------------------------------------------------------------------------------------------------------------------

  void schedule(std::size_t a, Picoseconds time, Picoseconds duration) {
    activities_[a] = {.running = false, .since = time, .remaining = duration};
    due_[a] = time;
  }

  void start(std::size_t a) {
    activities_[a].running = true;
    due_[a] += activities_[a].remaining;
  }

  void end(std::size_t a) {
    activities_[a].running = false;
    due_[a] = never;
  }

  void handle_meetings(Picoseconds now) {
    for (std::size_t m = 0; m < meetings_.size(); ++m) {
      if (due_[m] != now) continue;
      mix_changed_ = true;
      if (activities_[m].running) end_meeting(m, now);
      else start_meeting(m, now);
    }
  }

  void start_meeting(std::size_t m, Picoseconds now) {
    start(m);
    for (const auto& [r, s] : meetings_[m].present) {
      ++ranks_[r].collectives;
      ranks_[r].queues.open_slice(s, now);
    }
  }

  void end_meeting(std::size_t m, Picoseconds now) {
    end(m);
    Meeting& meeting = meetings_[m];
    ++meeting.turn;
    meeting.ready = now;
    meeting.duration = 0;
    leaving_.swap(meeting.present);  // `present` is empty when the ranks advance to their next collective
    for (const auto& [r, s] : leaving_) {
      --ranks_[r].collectives;
      ranks_[r].arrived[s] = false;
      ranks_[r].queues.close_slice(s, now);
      ranks_[r].queues.complete(s, now);
    }
    for (const auto& [r, s] : leaving_) advance(r);
    leaving_.clear();
  }

  void handle_streams(std::size_t r, Picoseconds now) {
    Rank& rank = ranks_[r];
    bool ended = false;
    for (std::size_t s = 0; s < rank.queues.streams(); ++s) {
      const std::size_t a = rank.first_activity + s;
      if (due_[a] != now) continue;
      const OpCost& cost = rank.queues.cost(rank.queues.head(s));
      mix_changed_ = mix_changed_ || uses_shares(cost) || (cost.compute && rank.collectives > 0);
      if (activities_[a].running) {
        end(a);
        rank.queues.close_slice(s, now);
        rank.queues.complete(s, now);
        ended = true;
      } else {
        start(a);
        rank.queues.open_slice(s, now);
      }
    }
    if (ended) advance(r);
  }

  // Speeds -------------------------------------------------------------------------------------------------------------------------

  static bool uses_shares(const OpCost& cost) { return cost.share != decltype(cost.share){}; }

  /// Gives every running activity the speed that the present mix allows.
  void retune(Picoseconds now) {
    share_resources();
    for (std::size_t m = 0; m < meetings_.size(); ++m)
      if (activities_[m].running) set_speed(m, now, shares_.speed(activities_[m].flow));
    for (const Rank& rank : ranks_)
      for (std::size_t s = 0; s < rank.queues.streams(); ++s) {
        const std::size_t a = rank.first_activity + s;
        if (!activities_[a].running) continue;
        const bool slowed = rank.collectives > 0 && rank.queues.cost(rank.queues.head(s)).compute;
        set_speed(a, now, shares_.speed(activities_[a].flow) * (slowed ? overlap_speed_ : 1));
      }
  }

  void share_resources() {
    shares_.clear();
    for (std::size_t m = 0; m < meetings_.size(); ++m) {
      if (!activities_[m].running) continue;
      activities_[m].flow = shares_.add_flow();
      for (const auto& [r, s] : meetings_[m].present) use_shares(r, s);
    }
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      for (std::size_t s = 0; s < ranks_[r].queues.streams(); ++s) {
        Activity& activity = activities_[ranks_[r].first_activity + s];
        if (!activity.running) continue;
        activity.flow = shares_.add_flow();
        use_shares(r, s);
      }
    shares_.solve();
  }

  void use_shares(std::size_t r, std::size_t s) {
    const OpCost& cost = ranks_[r].queues.cost(ranks_[r].queues.head(s));
    for (std::size_t k = 0; k < resource_count; ++k) shares_.use(r * resource_count + k, cost.share[k]);
  }

  void set_speed(std::size_t a, Picoseconds now, double speed) {
    Activity& activity = activities_[a];
    if (activity.speed == speed) return;
    const auto progress = static_cast<Picoseconds>(std::llround(static_cast<double>(now - activity.since) * activity.speed));
    activity.remaining -= std::min(activity.remaining, progress);
    activity.since = now;
    activity.speed = speed;
    due_[a] = now + static_cast<Picoseconds>(std::llround(static_cast<double>(activity.remaining) / speed));
  }

  void check_finished() const {
    if (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.queues.finished(); })) return;
    std::string text = "the programs deadlock";
    for (std::size_t r = 0; r < ranks_.size(); ++r) text += fmt::format("; program {}: {}", r, ranks_[r].queues.position());
    throw std::logic_error(text);
  }

  std::vector<Rank> ranks_;
  std::vector<Meeting> meetings_;
  std::vector<Activity> activities_;      // of the meetings, then of every rank's streams
  std::vector<Picoseconds> due_;          // by activity: when it starts or ends; apart from the rest because every event scans it
  std::vector<Meeting::Member> leaving_;
  FairShare shares_;
  double overlap_speed_;
  bool mix_changed_ = false;
};

}  // namespace

std::vector<Timeline> simulate(std::span<const RankProgram> programs, const Machine& machine) { return Replay(programs, machine).run(); }

}  // namespace shardsim
