// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/rank_queues.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace shardsim {

RankQueues::RankQueues(const RankProgram& program)
    : program_(program),
      ops_(program.program->ops()),
      issued_(std::make_unique_for_overwrite<Picoseconds[]>(ops_.size())),
      done_(ops_.size(), unknown_time),
      waiter_(ops_.size(), -1),
      queues_(program.schedule().streams.size()) {
  const std::size_t classes = program.program->examples().size();
  if (program.prices.size() != classes)
    throw std::logic_error(fmt::format("{} prices for {} classes of ops", program.prices.size(), classes));
  timeline_.host.reserve(ops_.size());
  timeline_.slices.reserve(ops_.size());
  woken_.reserve(2 * queues_.size());
}

void RankQueues::advance_host() {
  for (; counter_ < ops_.size(); ++counter_) {
    const auto i = static_cast<std::int32_t>(counter_);
    const ReplayOp& next = ops_[counter_];
    if (next.behind >= 0 && !has_room(next.behind)) return;
    const Picoseconds from = clock_;
    if (next.stream >= 0)
      enqueue(i, next);
    else if (!issue(i, next.kind))
      return;
    if (clock_ != from) timeline_.host.push_back({next.op, SimTime{from}, SimTime{clock_}});
  }
}

std::int32_t RankQueues::next_woken() {
  if (std::exchange(host_may_go_on_, false)) advance_host();
  if (woken_.empty()) return -1;
  const std::int32_t stream = woken_.back();
  woken_.pop_back();
  return stream;
}

bool RankQueues::issue(std::int32_t i, ReplayOp::Kind kind) {
  if (kind == ReplayOp::Kind::host_wait) return issue_host_wait(i);
  if (kind == ReplayOp::Kind::synchronize) return issue_synchronize(i);
  issue_host_update(i);
  return true;
}

inline void RankQueues::enqueue(std::int32_t i, const ReplayOp& next) {
  const Picoseconds issued = clock_ + program_.cost(next).host.picoseconds();
  clock_ = issued;
  issued_[static_cast<std::size_t>(i)] = issued;
  ++issued_count_;
  const auto stream = static_cast<std::size_t>(next.stream);
  Queue& queue = queues_[stream];
  if (queue.head >= 0) return;
  queue.head = i;
  wake(stream);
}

bool RankQueues::has_room(std::int32_t behind) {
  const Picoseconds reached = done(behind);
  awaited_ = reached == unknown_time ? behind : -1;
  if (reached == unknown_time) return false;
  clock_ = std::max(clock_, reached);
  return true;
}

bool RankQueues::issue_host_wait(std::int32_t i) {
  const std::int32_t target = op(i).target;
  const Picoseconds reached = done(target);
  awaited_ = reached == unknown_time ? target : -1;
  if (reached == unknown_time) return false;
  clock_ = std::max(clock_, reached);
  spend(i);
  return true;
}

bool RankQueues::issue_synchronize(std::int32_t i) {
  awaits_all_ = done_count_ != issued_count_;
  if (awaits_all_) return false;
  clock_ = std::max(clock_, last_done_);
  spend(i);
  return true;
}

void RankQueues::issue_host_update(std::int32_t i) {
  spend(i);
  clock_ += cost(i).device.picoseconds();
  ++issued_count_;
  set_done(i, clock_);
}

bool RankQueues::wake_waiters(std::int32_t i) {
  const bool host_waits = i == awaited_ || (awaits_all_ && done_count_ == issued_count_);
  if (host_waits) host_may_go_on_ = true;
  std::int16_t s = waiter_[static_cast<std::size_t>(i)];
  if (s < 0) return host_waits;
  for (; s >= 0; s = queues_[static_cast<std::size_t>(s)].next_waiter) wake(static_cast<std::size_t>(s));
  return true;
}

bool RankQueues::pass_waits(std::size_t stream) {
  Queue& queue = queues_[stream];
  while (queue.head >= 0) {
    const ReplayOp& wait = op(queue.head);
    if (wait.kind != ReplayOp::Kind::wait) return true;
    const Picoseconds reached = done(wait.target);
    if (reached == unknown_time) {
      queue.next_waiter = std::exchange(waiter_[static_cast<std::size_t>(wait.target)], static_cast<std::int16_t>(stream));
      return false;
    }
    pop(queue, std::max({queue.free_at, issued(queue.head), reached}));
  }
  return false;
}

inline void RankQueues::drop_head(Queue& queue) {
  const std::int32_t next = op(queue.head).next;
  queue.head = next < static_cast<std::int32_t>(counter_) ? next : -1;  // what the host has not come to is not in the queue
}

void RankQueues::pop(Queue& queue, Picoseconds time) {
  set_done(queue.head, time);
  queue.free_at = time;
  drop_head(queue);
}

void RankQueues::complete(std::size_t stream, Picoseconds time) {
  Queue& queue = queues_[stream];
  close_slice(queue, time);
  pop(queue, time);
  if (queue.head >= 0) wake(stream);
}

Sprint RankQueues::sprint(std::size_t stream, Picoseconds end, Picoseconds until, double compute_speed) {
  Queue& queue = queues_[stream];
  for (;;) {
    close_slice(queue, end);
    const std::int32_t ended = queue.head;
    queue.free_at = end;
    drop_head(queue);
    if (set_done(ended, end) || queue.head < 0) break;
    const ReplayOp& next = op(queue.head);
    const OpCost& price = program_.cost(next);
    const Picoseconds begin = std::max(end, issued(queue.head));
    if (next.kind != ReplayOp::Kind::kernel || uses_shares(price) || begin >= until) break;
    const bool slowed = price.compute && compute_speed != 1;
    const Picoseconds duration = price.device.picoseconds();
    const Picoseconds due = begin + (slowed ? stretched(duration, compute_speed) : duration);
    open_slice(queue, stream, begin);
    if (due >= until) return {.now = begin, .running = true, .slowed = slowed, .duration = duration, .due = due};
    end = due;
  }
  if (queue.head >= 0) wake(stream);
  return {.now = end};
}

std::string RankQueues::describe(std::int32_t i) const {
  const OpId id = op(i).op;
  return fmt::format("op {} {}", id.index, to_text(schedule().at(id).label, schedule()));
}

std::string RankQueues::position() const {
  std::string text = counter_ < ops_.size() ? "host at " + describe(static_cast<std::int32_t>(counter_)) : "host done";
  for (std::size_t s = 0; s < queues_.size(); ++s)
    if (head(s) >= 0) text += fmt::format(", stream {} at {}", schedule().streams[s].name, describe(head(s)));
  return text;
}

Timeline RankQueues::take_timeline() && {
  std::vector<Slice>& slices = timeline_.slices;
  // They begin in order of time already; only those of one instant may be out of order.
  for (std::size_t i = 1; i < slices.size(); ++i)
    for (std::size_t k = i; k > 0 && slices[k].begin == slices[k - 1].begin && slices[k].op < slices[k - 1].op; --k)
      std::swap(slices[k], slices[k - 1]);
  timeline_.end = SimTime{std::max(clock_, last_done_)};
  return std::move(timeline_);
}

}  // namespace shardsim
