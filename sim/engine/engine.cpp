// SPDX-License-Identifier: Apache-2.0
// The event loop: starts and ends what the ranks' queues hold, in the order of simulated time.
//
// No decision depends on the order in which events of one instant are handled: queues are first-in first-out and resources are shared
// fairly. That is what makes the result independent of how the ranks and streams are numbered.
#include "sim/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <utility>

#include "sim/engine/due_times.hpp"
#include "sim/engine/fair_share.hpp"
#include "sim/engine/rank_queues.hpp"

namespace shardsim {
namespace {

constexpr Picoseconds never = DueTimes::never;

/// Something that takes device time: the head of a stream, or the collective of a meeting.
struct Run {
  bool running = false;       ///< else it waits for its time, or there is none
  Picoseconds since = 0;      ///< `remaining` is as of this time
  Picoseconds remaining = 0;  ///< at full speed
  double speed = 1;
  std::size_t flow = 0;  ///< while it runs: its place in the sharing of resources
};

struct Rank {
  RankQueues queues;
  std::size_t first_activity = 0;       ///< of stream 0
  std::vector<std::size_t> meeting_of;  ///< by communicator
  std::int32_t collectives = 0;         ///< running
};

/// A stream of a rank.
struct Place {
  std::size_t rank, stream;
};

/// The queue of one communicator over all programs that have it. One collective at a time.
struct Meeting {
  std::string name;
  std::size_t size = 0;                 ///< programs that take part
  std::vector<Place> present;           ///< for the collective that gathers or runs
  std::vector<Place> early;             ///< streams whose head is a later collective
  std::int32_t turn = 0;                ///< collectives done
  Picoseconds ready = 0, duration = 0;  ///< of the collective that gathers
};

class Replay {
 public:
  Replay(std::span<const RankProgram> programs, const ReplayOptions& machine)
      : shares_(programs.size() * resource_count), overlap_speed_(1 / (1 + machine.overlap_slowdown)) {
    ranks_.reserve(programs.size());
    for (const RankProgram& program : programs) add(program);
    places_.resize(meetings_.size());
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].first_activity = places_.size();
      for (std::size_t s = 0; s < ranks_[r].queues.streams(); ++s) places_.push_back({r, s});
    }
    activities_.resize(places_.size());
    due_ = DueTimes(places_.size());
  }

  std::vector<Timeline> run() && {
    for (std::size_t r = 0; r < ranks_.size(); ++r) advance(r);
    for (;;) {
      if (std::exchange(mix_changed_, false)) retune();
      const DueTimes::Next next = due_.next();
      if (next.time == never) break;
      if (next.time < next.others && runs_alone(next.index)) {
        sprint(next.index, next.others);
        continue;
      }
      now_ = next.time;
      handle_due();
    }
    check_finished();
    std::vector<Timeline> timelines;
    timelines.reserve(ranks_.size());
    for (Rank& rank : ranks_) timelines.push_back(std::move(rank.queues).take_timeline());
    return timelines;
  }

 private:
  void add(const RankProgram& program) {
    Rank& rank = ranks_.emplace_back(Rank{.queues = RankQueues(program), .meeting_of = {}});
    const std::vector<Communicator>& communicators = program.schedule().communicators;
    for (std::size_t c = 0; c < communicators.size(); ++c) {
      const std::int32_t number = program.meetings.empty() ? 0 : program.meetings[c];
      const auto [at, fresh] = numbers_.try_emplace({communicators[c].name, number}, meetings_.size());
      if (fresh) meetings_.push_back({.name = communicators[c].name, .present = {}, .early = {}});
      rank.meeting_of.push_back(at->second);
      ++meetings_[at->second].size;
    }
  }

  /// Everything that is due now.
  void handle_due() {
    if (due_.are_few()) {
      for (std::size_t a = 0; a < due_.size(); ++a)
        if (due_[a] == now_) handle(a);
      return;
    }
    for (DueTimes::Next next = due_.next(); next.time == now_; next = due_.next()) handle(next.index);
  }

  // Queues -------------------------------------------------------------------------------------------------------------------------

  /// Lets a rank go as far as what is done by now allows.
  void advance(std::size_t r) {
    RankQueues& queues = ranks_[r].queues;
    for (std::int32_t woken = queues.next_woken(); woken >= 0; woken = queues.next_woken()) {
      const auto s = static_cast<std::size_t>(woken);
      if (!queues.pass_waits(s)) continue;
      const std::int32_t op = queues.head(s);
      if (queues.op(op).kind == ReplayOp::Kind::collective)
        arrive({r, s}, op);
      else
        schedule(ranks_[r].first_activity + s, queues.ready(s), queues.cost(op).device.picoseconds());
    }
  }

  void arrive(Place place, std::int32_t op) {
    const Rank& rank = ranks_[place.rank];
    const ReplayOp& arrived = rank.queues.op(op);
    const std::size_t m = rank.meeting_of[static_cast<std::size_t>(arrived.target)];
    Meeting& meeting = meetings_[m];
    if (arrived.turn != meeting.turn) return meeting.early.push_back(place);
    if (!meeting.present.empty()) check_match(meeting, rank.queues, op);
    meeting.ready = std::max(meeting.ready, rank.queues.ready(place.stream));
    meeting.duration = std::max(meeting.duration, rank.queues.cost(op).device.picoseconds());
    meeting.present.push_back(place);
    if (meeting.present.size() == meeting.size) schedule(m, meeting.ready, meeting.duration);
  }

  void check_match(const Meeting& meeting, const RankQueues& mine, std::int32_t op) const {
    const RankQueues& theirs = ranks_[meeting.present.front().rank].queues;
    const Op& a = mine.schedule().at(mine.op(op).op);
    const Op& b = theirs.schedule().at(theirs.op(theirs.head(meeting.present.front().stream)).op);
    const auto& x = std::get<Communicate>(a.action);
    const auto& y = std::get<Communicate>(b.action);
    if (x.kind == y.kind && x.dtype == y.dtype && x.payload == y.payload) return;
    throw std::logic_error(fmt::format("collective {} on communicator {} is {} for one program and {} for another", meeting.turn,
                                       meeting.name, to_text(a.label, mine.schedule()), to_text(b.label, theirs.schedule())));
  }

  // Events -------------------------------------------------------------------------------------------------------------------------

  [[nodiscard]] bool is_meeting(std::size_t a) const { return a < meetings_.size(); }

  void schedule(std::size_t a, Picoseconds time, Picoseconds duration) {
    activities_[a] = {.remaining = duration};
    due_.set(a, time);
    if (time <= now_) start(a);
  }

  void handle(std::size_t a) {
    if (!activities_[a].running) return start(a);
    activities_[a].running = false;
    due_.set(a, never);
    is_meeting(a) ? end_meeting(a) : end_stream(a);
  }

  void start(std::size_t a) {
    activities_[a].running = true;
    activities_[a].since = now_;
    due_.set(a, now_ + activities_[a].remaining);
    is_meeting(a) ? start_meeting(a) : start_stream(a);
  }

  /// Whether it is an op of a stream whose end changes nothing but its stream.
  [[nodiscard]] bool runs_alone(std::size_t a) const {
    return activities_[a].running && !is_meeting(a) && !uses_shares(running_cost(places_[a]));
  }

  /// Lets a stream go on by itself until something else is due.
  void sprint(std::size_t a, Picoseconds until) {
    const auto [r, s] = places_[a];
    const Sprint at = ranks_[r].queues.sprint(s, due_[a], until, ranks_[r].collectives > 0 ? overlap_speed_ : 1);
    now_ = at.now;
    activities_[a] = {.running = at.running, .since = now_, .remaining = at.duration, .speed = at.slowed ? overlap_speed_ : 1};
    due_.set(a, at.running ? at.due : never);
    if (!at.running) advance(r);
  }

  void start_stream(std::size_t a) {
    const auto [r, s] = places_[a];
    Rank& rank = ranks_[r];
    rank.queues.open_slice(s, now_);
    const OpCost& cost = rank.queues.cost(rank.queues.head(s));
    if (uses_shares(cost))
      mix_changed_ = true;
    else if (is_slowed(rank, cost))
      set_speed(a, overlap_speed_);
  }

  void end_stream(std::size_t a) {
    const auto [r, s] = places_[a];
    RankQueues& queues = ranks_[r].queues;
    mix_changed_ = mix_changed_ || uses_shares(queues.cost(queues.head(s)));
    queues.complete(s, now_);
    advance(r);
  }

  void start_meeting(std::size_t m) {
    mix_changed_ = true;
    for (const auto& [r, s] : meetings_[m].present) {
      ++ranks_[r].collectives;
      ranks_[r].queues.open_slice(s, now_);
    }
  }

  void end_meeting(std::size_t m) {
    mix_changed_ = true;
    Meeting& meeting = meetings_[m];
    ++meeting.turn;
    meeting.ready = now_;
    meeting.duration = 0;
    leaving_.swap(meeting.present);  // both are empty when the ranks go on to their next collective
    early_.swap(meeting.early);
    for (const auto& [r, s] : leaving_) {
      --ranks_[r].collectives;
      ranks_[r].queues.complete(s, now_);
    }
    for (const auto& [r, s] : early_) ranks_[r].queues.wake(s);
    for (const auto& [r, s] : leaving_) advance(r);
    leaving_.clear();
    early_.clear();
  }

  // Speeds -------------------------------------------------------------------------------------------------------------------------

  static bool is_slowed(const Rank& rank, const OpCost& cost) { return cost.compute && rank.collectives > 0; }
  [[nodiscard]] const OpCost& running_cost(Place place) const {
    const RankQueues& queues = ranks_[place.rank].queues;
    return queues.cost(queues.head(place.stream));
  }

  /// Gives every running activity the speed that the present mix allows.
  void retune() {
    const bool contended = may_contend();
    if (contended) share_resources();
    for (std::size_t a = 0; a < activities_.size(); ++a) {
      if (!activities_[a].running) continue;
      const bool slowed = !is_meeting(a) && is_slowed(ranks_[places_[a].rank], running_cost(places_[a]));
      set_speed(a, (contended ? shares_.speed(activities_[a].flow) : 1) * (slowed ? overlap_speed_ : 1));
    }
  }

  /// One that uses resources by itself, and no more of them than there is, has its full speed. Most collectives do.
  [[nodiscard]] bool may_contend() const {
    int users = 0;
    for (std::size_t a = 0; a < activities_.size(); ++a) {
      if (!activities_[a].running) continue;
      const std::span<const Place> places = is_meeting(a) ? std::span<const Place>(meetings_[a].present) : std::span(&places_[a], 1);
      float most = 0;
      for (const Place& place : places) most = std::max(most, largest_share(running_cost(place)));
      users += most > 0 ? 1 : 0;
      if (users > 1 || most > 1) return true;
    }
    return false;
  }

  static float largest_share(const OpCost& cost) { return *std::max_element(cost.share.begin(), cost.share.end()); }

  void share_resources() {
    shares_.clear();
    for (std::size_t a = 0; a < activities_.size(); ++a) {
      if (!activities_[a].running) continue;
      activities_[a].flow = shares_.add_flow();
      if (is_meeting(a))
        for (const Place& place : meetings_[a].present) use_shares(place);
      else
        use_shares(places_[a]);
    }
    shares_.solve();
  }

  void use_shares(Place place) {
    const OpCost& cost = running_cost(place);
    for (std::size_t k = 0; k < resource_count; ++k) shares_.use(place.rank * resource_count + k, cost.share[k]);
  }

  void set_speed(std::size_t a, double speed) {
    Run& activity = activities_[a];
    if (activity.speed == speed) return;
    const auto progress = static_cast<Picoseconds>(std::llround(static_cast<double>(now_ - activity.since) * activity.speed));
    activity.remaining -= std::min(activity.remaining, progress);
    activity.since = now_;
    activity.speed = speed;
    due_.set(a, now_ + stretched(activity.remaining, speed));
  }

  void check_finished() const {
    if (std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.queues.finished(); })) return;
    std::string text = "the programs deadlock";
    for (std::size_t r = 0; r < ranks_.size(); ++r) text += fmt::format("; program {}: {}", r, ranks_[r].queues.position());
    throw std::logic_error(text);
  }

  std::vector<Rank> ranks_;
  std::vector<Meeting> meetings_;
  std::map<std::pair<std::string, std::int32_t>, std::size_t> numbers_;  // of meetings, by communicator and which of its name
  std::vector<Run> activities_;                                          // of the meetings, then of every rank's streams
  DueTimes due_;                                                         // by activity: when it starts or ends
  std::vector<Place> places_;                                            // by activity; nothing for meetings
  std::vector<Place> leaving_, early_;
  FairShare shares_;
  double overlap_speed_;
  Picoseconds now_ = 0;
  bool mix_changed_ = false;
};

}  // namespace

const OpCost& RankProgram::cost(OpId op) const {
  const std::int32_t position = program->find(op);
  return position < 0 ? prices.front() : cost(program->ops()[static_cast<std::size_t>(position)]);
}

RankProgram priced_op_by_op(const Schedule& schedule, std::span<const OpCost> costs) {
  if (costs.size() != schedule.ops.size()) throw std::logic_error(fmt::format("{} costs for {} ops", costs.size(), schedule.ops.size()));
  RankProgram priced{std::make_shared<const ReplayProgram>(schedule, ReplayProgram::Pricing::op_by_op), {OpCost{}}};
  priced.prices.insert(priced.prices.end(), costs.begin(), costs.end());
  return priced;
}

std::vector<Timeline> simulate(std::span<const RankProgram> programs, const ReplayOptions& machine) {
  return Replay(programs, machine).run();
}

}  // namespace shardsim
