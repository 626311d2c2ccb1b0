// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/rank_queues.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace shardsim {

RankQueues::RankQueues(const RankProgram& program)
    : schedule_(*program.schedule),
      costs_(program.costs),
      ops_(schedule_.ops.size()),
      queues_(schedule_.streams.size()),
      issued_on_(schedule_.communicators.size()) {
  if (costs_.size() != ops_.size()) throw std::logic_error(fmt::format("{} costs for {} ops", costs_.size(), ops_.size()));
  timeline_.host.reserve(ops_.size());
  timeline_.slices.reserve(ops_.size());
  woken_.reserve(2 * queues_.size());
}

void RankQueues::advance_host() {
  for (; counter_ < schedule_.ops.size(); ++counter_) {
    const Picoseconds from = clock_;
    const auto i = static_cast<std::int32_t>(counter_);
    const Op& op = schedule_.ops[counter_];
    if (!std::visit([&](const auto& action) { return issue(i, op, action); }, op.action)) break;
    if (clock_ != from) timeline_.host.push_back({OpId{i}, SimTime{from}, SimTime{clock_}});
  }
}

std::int32_t RankQueues::next_woken() {
  if (std::exchange(host_may_go_on_, false)) advance_host();
  if (woken_.empty()) return -1;
  const std::int32_t stream = woken_.back();
  woken_.pop_back();
  return stream;
}

Issued& RankQueues::enqueue(std::int32_t op, StreamId stream) {
  spend(op);
  Queue& queue = queues_[static_cast<std::size_t>(stream.index)];
  if (queue.head < 0) {
    queue.head = op;
    wake(static_cast<std::size_t>(stream.index));
  } else {
    at(queue.tail).next = op;
  }
  queue.tail = op;
  ++issued_;
  at(op).at = clock_;
  return at(op);
}

bool RankQueues::issue(std::int32_t i, const Op& op, const Compute&) {
  enqueue(i, op.stream);
  return true;
}

bool RankQueues::issue(std::int32_t i, const Op& op, const Copy&) {
  enqueue(i, op.stream);
  return true;
}

bool RankQueues::issue(std::int32_t i, const Op&, const Allocate&) {
  spend(i);
  return true;
}

bool RankQueues::issue(std::int32_t i, const Op&, const Free&) {
  spend(i);
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
  const Picoseconds done = at(action.op.index).done;
  if (done == unknown_time) return false;
  clock_ = std::max(clock_, done);
  spend(i);
  return true;
}

bool RankQueues::issue(std::int32_t i, const Op&, const Synchronize&) {
  if (done_ != issued_) return false;
  clock_ = std::max(clock_, last_done_);
  spend(i);
  return true;
}

bool RankQueues::issue(std::int32_t i, const Op& op, const Update& action) {
  if (!action.on_host) {
    enqueue(i, op.stream);
    return true;
  }
  spend(i);
  clock_ += cost(i).device.picoseconds();
  ++issued_;
  set_done(i, clock_);
  return true;
}

void RankQueues::set_done(std::int32_t op, Picoseconds time) {
  Issued& issued = at(op);
  issued.done = time;
  last_done_ = std::max(last_done_, time);
  ++done_;
  for (std::int16_t s = std::exchange(issued.waiter, std::int16_t{-1}); s >= 0; s = queues_[static_cast<std::size_t>(s)].next_waiter)
    wake(static_cast<std::size_t>(s));
  host_may_go_on_ = true;
}

bool RankQueues::pass_waits(std::size_t stream) {
  for (std::int32_t op = head(stream); op >= 0; op = head(stream)) {
    if (!issued(op).wait) return true;
    Issued& target = at(issued(op).target);
    if (target.done == unknown_time) {
      queues_[stream].next_waiter = std::exchange(target.waiter, static_cast<std::int16_t>(stream));
      return false;
    }
    pop(stream, std::max(ready(stream), target.done));
  }
  return false;
}

void RankQueues::pop(std::size_t stream, Picoseconds time) {
  Queue& queue = queues_[stream];
  set_done(queue.head, time);
  queue.free_at = time;
  queue.head = at(queue.head).next;
}

void RankQueues::complete(std::size_t stream, Picoseconds time) {
  pop(stream, time);
  if (head(stream) >= 0) wake(stream);
}

void RankQueues::open_slice(std::size_t stream, Picoseconds begin) {
  queues_[stream].slice = timeline_.slices.size();
  timeline_.slices.push_back({OpId{head(stream)}, StreamId{static_cast<std::int32_t>(stream)}, SimTime{begin}, SimTime{begin}});
}

std::string RankQueues::describe(std::int32_t op) const {
  return fmt::format("op {} {}", op, to_text(schedule_.at(OpId{op}).label, schedule_));
}

std::string RankQueues::position() const {
  std::string text = counter_ < ops_.size() ? "host at " + describe(static_cast<std::int32_t>(counter_)) : "host done";
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
