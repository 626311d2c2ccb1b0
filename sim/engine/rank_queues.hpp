// SPDX-License-Identifier: Apache-2.0
// One rank during a replay: its host program, and the queues of what the host has issued and the streams have not finished.
//
// The host is followed eagerly: what it issues depends on the device only at HostWait and Synchronize, so that it runs ahead of the
// device's clock until one of these names an op that is not done. Whatever may let a stream go on wakes it: nothing is polled.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/engine/engine.hpp"

namespace shardsim {

using Picoseconds = std::int64_t;
inline constexpr Picoseconds unknown_time = -1;

/// What a replay knows of an op on a stream, written whole when the host issues it: until then there is nothing to read.
struct Issued {
  Picoseconds at;       ///< the host has finished issuing it
  std::int32_t next;    ///< the op behind it on its stream; -1 if there is none
  std::int32_t target;  ///< of a wait: the op; of a collective: its communicator
  std::int32_t turn;    ///< of a collective: how many came before it on its communicator
  bool wait, collective;
  bool plain;           ///< takes device time, and no part in anything shared
};

/// Where a stream stands after a sprint.
struct Sprint {
  Picoseconds now = 0;              ///< the last event that the sprint saw to
  bool running = false;             ///< the head of the stream runs since then; else whatever comes next is to be looked at
  bool slowed = false;
  Picoseconds duration = 0, due = 0;  ///< of the running head: at full speed; when it ends
};

[[nodiscard]] inline bool uses_shares(const OpCost& cost) { return cost.share != decltype(cost.share){}; }

/// What `duration` at full speed takes at another.
[[nodiscard]] inline Picoseconds stretched(Picoseconds duration, double speed) {
  return static_cast<Picoseconds>(std::llround(static_cast<double>(duration) / speed));
}

class RankQueues {
 public:
  explicit RankQueues(const RankProgram& program);

  /// Lets the host go as far as what is done allows, and returns a stream that may be able to go on; -1 if there is none.
  [[nodiscard]] std::int32_t next_woken();
  void wake(std::size_t stream) { woken_.push_back(static_cast<std::int32_t>(stream)); }

  [[nodiscard]] std::size_t streams() const { return queues_.size(); }
  /// The first op of the stream that is not done; -1 if everything issued is.
  [[nodiscard]] std::int32_t head(std::size_t stream) const { return queues_[stream].head; }
  [[nodiscard]] const Issued& issued(std::int32_t op) const { return issued_ops_[static_cast<std::size_t>(op)]; }
  [[nodiscard]] const OpCost& cost(std::int32_t op) const { return costs_[static_cast<std::size_t>(op)]; }
  /// When the host and the stream would let the head begin.
  [[nodiscard]] Picoseconds ready(std::size_t stream) const { return std::max(queues_[stream].free_at, issued(queues_[stream].head).at); }
  /// Passes the waits at the head of a stream. Returns whether something that runs comes next; the stream wakes when that changes.
  [[nodiscard]] bool pass_waits(std::size_t stream);
  /// The head of the stream, which ran until `time`, is done.
  void complete(std::size_t stream, Picoseconds time);

  /// Ends the head of a stream, which runs until `end`, and runs what is behind it as long as nothing else is due before `until` and
  /// none of it takes part in anything shared: what the events would do one by one. Kernels run at `compute_speed`.
  [[nodiscard]] Sprint sprint(std::size_t stream, Picoseconds end, Picoseconds until, double compute_speed);

  void open_slice(std::size_t stream, Picoseconds begin) { open_slice(queues_[stream], stream, begin); }

  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  [[nodiscard]] bool finished() const { return counter_ == schedule_.ops.size() && done_count_ == issued_count_; }
  /// Where the host and the streams stand, for the message about a deadlock.
  [[nodiscard]] std::string position() const;
  [[nodiscard]] Timeline take_timeline() &&;

 private:
  struct Queue {
    std::int32_t head = -1, tail = -1;
    Picoseconds free_at = 0;
    std::size_t slice = 0;          ///< of the running head
    std::int16_t next_waiter = -1;  ///< the next stream that waits for the same op
  };

  void advance_host();
  void open_slice(Queue& queue, std::size_t stream, Picoseconds begin) {
    queue.slice = timeline_.slices.size();
    timeline_.slices.push_back({OpId{queue.head}, StreamId{static_cast<std::int32_t>(stream)}, SimTime{begin}, SimTime{begin}});
  }
  void close_slice(const Queue& queue, Picoseconds end) { timeline_.slices[queue.slice].end = SimTime{end}; }
  [[nodiscard]] Picoseconds done(std::int32_t op) const { return done_[static_cast<std::size_t>(op)]; }
  void spend(std::int32_t op) { clock_ += cost(op).host.picoseconds(); }
  Issued& enqueue(std::int32_t op, StreamId stream);
  void pop(Queue& queue, Picoseconds time);
  /// Returns whether that may let the host or a stream go on.
  bool set_done(std::int32_t op, Picoseconds time);
  [[nodiscard]] std::string describe(std::int32_t op) const;

  bool issue_plain(std::int32_t i, StreamId stream);

  // How each kind of op is issued; false if the host must wait first.
  bool issue(std::int32_t i, const Op& op, const Compute&) { return issue_plain(i, op.stream); }
  bool issue(std::int32_t i, const Op& op, const Communicate& action);
  bool issue(std::int32_t i, const Op& op, const Copy&) { return issue_plain(i, op.stream); }
  bool issue(std::int32_t i, const Op&, const Allocate&) { return spend(i), true; }
  bool issue(std::int32_t i, const Op&, const Free&) { return spend(i), true; }
  bool issue(std::int32_t i, const Op& op, const Wait& action);
  bool issue(std::int32_t i, const Op& op, const HostWait& action);
  bool issue(std::int32_t i, const Op& op, const Synchronize&);
  bool issue(std::int32_t i, const Op& op, const Update& action);

  const Schedule& schedule_;
  std::span<const OpCost> costs_;
  std::unique_ptr<Issued[]> issued_ops_;  // by op
  std::vector<Picoseconds> done_;         // by op; may lie in the future: a wait's is known as soon as that of its op is
  std::vector<std::int16_t> waiter_;      // by op: the first of the streams that wait for it
  std::vector<Queue> queues_;             // by stream
  std::vector<std::int32_t> issued_on_;   // by communicator: collectives issued so far
  std::vector<std::int32_t> woken_;       // streams that may be able to go on
  std::size_t counter_ = 0;               // the next op of the program
  bool host_may_go_on_ = true;
  std::int32_t awaited_ = -1;  // the op that the host waits for
  bool awaits_all_ = false;    // the host waits for everything issued
  Picoseconds clock_ = 0;      // of the host
  std::size_t issued_count_ = 0, done_count_ = 0;  // ops that take a place in time
  Picoseconds last_done_ = 0;
  Timeline timeline_;
};

}  // namespace shardsim
