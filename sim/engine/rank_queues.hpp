// SPDX-License-Identifier: Apache-2.0
// One rank during a replay: its host program, and the queues of what the host has issued and the streams have not finished.
//
// The host is followed eagerly: what it issues depends on the device only at HostWait and Synchronize, so that it runs ahead of the
// device's clock until one of these names an op that is not done. Whatever may let a stream go on wakes it: nothing is polled.
//
// Ops are numbered as in the ReplayProgram here, and what is known of each lies in arrays of its own.
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

/// Where a stream stands after a sprint.
struct Sprint {
  Picoseconds now = 0;   ///< the last event that the sprint saw to
  bool running = false;  ///< the head of the stream runs since then; else whatever comes next is to be looked at
  bool slowed = false;
  Picoseconds duration = 0, due = 0;  ///< of the running head: at full speed; when it ends
};

[[nodiscard]] inline bool uses_shares(const OpCost& cost) { return cost.share[0] + cost.share[1] + cost.share[2] > 0; }
static_assert(resource_count == 3);

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
  [[nodiscard]] const ReplayOp& op(std::int32_t i) const { return ops_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] const OpCost& cost(std::int32_t i) const { return program_.cost(op(i)); }
  /// When the host and the stream would let the head begin.
  [[nodiscard]] Picoseconds ready(std::size_t stream) const { return std::max(queues_[stream].free_at, issued(queues_[stream].head)); }
  /// Passes the waits at the head of a stream. Returns whether something that runs comes next; the stream wakes when that changes.
  [[nodiscard]] bool pass_waits(std::size_t stream);
  /// The head of the stream, which ran until `time`, is done.
  void complete(std::size_t stream, Picoseconds time);

  /// Ends the head of a stream, which runs until `end`, and runs what is behind it as long as nothing else is due before `until` and
  /// none of it takes part in anything shared: what the events would do one by one. Kernels run at `compute_speed`.
  [[nodiscard]] Sprint sprint(std::size_t stream, Picoseconds end, Picoseconds until, double compute_speed);

  void open_slice(std::size_t stream, Picoseconds begin) { open_slice(queues_[stream], stream, begin); }

  [[nodiscard]] const Schedule& schedule() const { return program_.schedule(); }
  [[nodiscard]] bool finished() const { return counter_ == ops_.size() && done_count_ == issued_count_; }
  /// Where the host and the streams stand, for the message about a deadlock.
  [[nodiscard]] std::string position() const;
  [[nodiscard]] Timeline take_timeline() &&;

 private:
  struct Queue {
    std::int32_t head = -1;
    std::int16_t next_waiter = -1;  ///< the next stream that waits for the same op
    Picoseconds free_at = 0;
    std::size_t slice = 0;  ///< of the running head
  };

  void advance_host();
  /// Returns false if the host must wait first.
  bool issue(std::int32_t i, ReplayOp::Kind kind);
  void enqueue(std::int32_t i, const ReplayOp& next);
  /// Whether the driver takes another launch; false until the op that stands too far behind is done.
  bool has_room(std::int32_t behind);
  bool issue_host_wait(std::int32_t i);
  bool issue_synchronize(std::int32_t i);
  void issue_host_update(std::int32_t i);

  void open_slice(Queue& queue, std::size_t stream, Picoseconds begin) {
    queue.slice = timeline_.slices.size();
    timeline_.slices.push_back({op(queue.head).op, StreamId{static_cast<std::int32_t>(stream)}, SimTime{begin}, SimTime{begin}});
  }
  void close_slice(const Queue& queue, Picoseconds end) { timeline_.slices[queue.slice].end = SimTime{end}; }
  /// When the host has finished issuing it.
  [[nodiscard]] Picoseconds issued(std::int32_t i) const { return issued_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] Picoseconds done(std::int32_t i) const { return done_[static_cast<std::size_t>(i)]; }
  void spend(std::int32_t i) { clock_ += cost(i).host.picoseconds(); }
  /// Takes the head of a queue off it.
  void drop_head(Queue& queue);
  void pop(Queue& queue, Picoseconds time);
  /// Returns whether that may let the host or a stream go on.
  bool set_done(std::int32_t i, Picoseconds time) {
    done_[static_cast<std::size_t>(i)] = time;
    last_done_ = std::max(last_done_, time);
    ++done_count_;
    const bool is_awaited = waiter_[static_cast<std::size_t>(i)] >= 0 || i == awaited_ || awaits_all_;
    return is_awaited && wake_waiters(i);
  }
  bool wake_waiters(std::int32_t i);
  [[nodiscard]] std::string describe(std::int32_t i) const;

  const RankProgram& program_;
  std::span<const ReplayOp> ops_;
  std::unique_ptr<Picoseconds[]> issued_;  // by op, once it is
  std::vector<Picoseconds> done_;          // by op; may lie in the future: a wait's is known as soon as that of its op is
  std::vector<std::int16_t> waiter_;       // by op: the first of the streams that wait for it
  std::vector<Queue> queues_;              // by stream
  std::vector<std::int32_t> woken_;        // streams that may be able to go on
  std::size_t counter_ = 0;                // the next op of the program
  bool host_may_go_on_ = true;
  std::int32_t awaited_ = -1;                      // the op that the host waits for
  bool awaits_all_ = false;                        // the host waits for everything issued
  Picoseconds clock_ = 0;                          // of the host
  std::size_t issued_count_ = 0, done_count_ = 0;  // ops that take a place in time
  Picoseconds last_done_ = 0;
  Timeline timeline_;
};

}  // namespace shardsim
