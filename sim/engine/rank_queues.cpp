// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/rank_queues.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace shardsim {
namespace {

/// Allocations: most of a program, and as a rule they cost the host nothing.
bool is_bookkeeping(const Op& op) { return std::holds_alternative<Allocate>(op.action) || std::holds_alternative<Free>(op.action); }

}  // namespace

RankQueues::RankQueues(const RankProgram& program)
    : schedule_(*program.schedule),
      costs_(program.costs),
      issued_ops_(std::make_unique_for_overwrite<Issued[]>(schedule_.ops.size())),
      done_(schedule_.ops.size(), unknown_time),
      waiter_(schedule_.ops.size(), -1),
      queues_(schedule_.streams.size()),
      issued_on_(schedule_.communicators.size()) {
  if (costs_.size() != done_.size()) throw std::logic_error(fmt::format("{} costs for {} ops", costs_.size(), done_.size()));
  timeline_.host.reserve(done_.size());
  timeline_.slices.reserve(done_.size());
  woken_.reserve(2 * queues_.size());
}

void RankQueues::advance_host() {
  const std::vector<Op>& ops = schedule_.ops;
  for (std::size_t i = counter_; i < ops.size(); ++i) {
    if (is_bookkeeping(ops[i]) && costs_[i].host == SimTime{}) continue;
    counter_ = i;
    const Picoseconds from = clock_;
    const auto op = static_cast<std::int32_t>(i);
    if (!std::visit([&](const auto& action) { return issue(op, ops[i], action); }, ops[i].action)) return;
    if (clock_ != from) timeline_.host.push_back({OpId{op}, SimTime{from}, SimTime{clock_}});
  }
  counter_ = ops.size();
}

std::int32_t RankQueues::next_woken() {
  if (std::exchange(host_may_go_on_, false)) advance_host();
  if (woken_.empty()) return -1;
  const std::int32_t stream = woken_.back();
  woken_.pop_back();
  return stream;
}

inline Issued& RankQueues::enqueue(std::int32_t op, StreamId stream) {
  spend(op);
  Queue& queue = queues_[static_cast<std::size_t>(stream.index)];
  if (queue.head < 0) {
    queue.head = op;
    wake(static_cast<std::size_t>(stream.index));
  } else {
    issued_ops_[static_cast<std::size_t>(queue.tail)].next = op;
  }
  queue.tail = op;
  ++issued_count_;
  Issued& issued = issued_ops_[static_cast<std::size_t>(op)];
  issued = {.at = clock_, .next = -1, .target = -1, .turn = 0, .wait = false, .collective = false, .plain = false};
  return issued;
}

bool RankQueues::issue_plain(std::int32_t i, StreamId stream) {
  enqueue(i, stream).plain = !uses_shares(cost(i));
  return true;
}

bool RankQueues::issue(std::int32_t i, const Op& op, const Communicate& action) {
  Issued& issued = enqueue(i, op.stream);
  issued.collective = true;
  issued.target = action.communicator.index;
  issued.turn = issued_on_[static_cast<std::size_t>(action.communicator.index)]++;
  return true;
}

bool RankQueues::issue(std::int32_t i, const Op& op, const Wait& action) {
  Issued& issued = enqueue(i, op.stream);
  issued.wait = true;
  issued.target = action.op.index;
  return true;
}

bool RankQueues::issue(std::int32_t i, const Op&, const HostWait& action) {
  const Picoseconds reached = done(action.op.index);
  awaited_ = reached == unknown_time ? action.op.index : -1;
  if (reached == unknown_time) return false;
  clock_ = std::max(clock_, reached);
  spend(i);
  return true;
}

bool RankQueues::issue(std::int32_t i, const Op&, const Synchronize&) {
  awaits_all_ = done_count_ != issued_count_;
  if (awaits_all_) return false;
  clock_ = std::max(clock_, last_done_);
  spend(i);
  return true;
}

bool RankQueues::issue(std::int32_t i, const Op& op, const Update& action) {
  if (!action.on_host) return issue_plain(i, op.stream);
  spend(i);
  clock_ += cost(i).device.picoseconds();
  ++issued_count_;
  set_done(i, clock_);
  return true;
}

bool RankQueues::set_done(std::int32_t op, Picoseconds time) {
  const auto i = static_cast<std::size_t>(op);
  done_[i] = time;
  last_done_ = std::max(last_done_, time);
  ++done_count_;
  const bool host_waits = op == awaited_ || (awaits_all_ && done_count_ == issued_count_);
  if (host_waits) host_may_go_on_ = true;
  std::int16_t s = waiter_[i];
  if (s < 0) return host_waits;
  for (; s >= 0; s = queues_[static_cast<std::size_t>(s)].next_waiter) wake(static_cast<std::size_t>(s));
  return true;
}

bool RankQueues::pass_waits(std::size_t stream) {
  Queue& queue = queues_[stream];
  for (; queue.head >= 0; ) {
    const Issued& wait = issued(queue.head);
    if (!wait.wait) return true;
    if (done(wait.target) == unknown_time) {
      queue.next_waiter = std::exchange(waiter_[static_cast<std::size_t>(wait.target)], static_cast<std::int16_t>(stream));
      return false;
    }
    pop(queue, std::max({queue.free_at, wait.at, done(wait.target)}));
  }
  return false;
}

void RankQueues::pop(Queue& queue, Picoseconds time) {
  set_done(queue.head, time);
  queue.free_at = time;
  queue.head = issued(queue.head).next;
}

void RankQueues::complete(std::size_t stream, Picoseconds time) {
  Queue& queue = queues_[stream];
  close_slice(queue, time);
  pop(queue, time);
  if (queue.head >= 0) wake(stream);
}

Sprint RankQueues::sprint(std::size_t stream, Picoseconds end, Picoseconds until, double compute_speed) {
  Queue& queue = queues_[stream];
  Sprint at;
  do {
    at = {.now = end};
    close_slice(queue, end);
    const std::int32_t op = queue.head;
    queue.free_at = end;
    queue.head = issued(op).next;
    if (set_done(op, end) || queue.head < 0) break;
    const Issued& next = issued(queue.head);
    const Picoseconds begin = std::max(end, next.at);
    if (!next.plain || begin >= until) break;
    const OpCost& price = cost(queue.head);
    at = {.now = begin, .running = true, .slowed = price.compute && compute_speed != 1, .duration = price.device.picoseconds()};
    at.due = begin + (at.slowed ? stretched(at.duration, compute_speed) : at.duration);
    open_slice(queue, stream, begin);
    end = at.due;
  } while (end < until);
  if (!at.running && queue.head >= 0) wake(stream);
  return at;
}

std::string RankQueues::describe(std::int32_t op) const {
  return fmt::format("op {} {}", op, to_text(schedule_.at(OpId{op}).label, schedule_));
}

std::string RankQueues::position() const {
  std::string text = counter_ < done_.size() ? "host at " + describe(static_cast<std::int32_t>(counter_)) : "host done";
  for (std::size_t s = 0; s < queues_.size(); ++s)
    if (head(s) >= 0) text += fmt::format(", stream {} at {}", schedule_.streams[s].name, describe(head(s)));
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
