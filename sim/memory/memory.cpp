// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace shardsim {
namespace {

constexpr std::int64_t segment_step = std::int64_t{2} << 20;  // cudaMalloc's requests are multiples of 2 MiB

/// Rounds to a granularity without a division where that is a power of two.
class Rounding {
 public:
  explicit Rounding(std::int64_t granularity)
      : granularity_(granularity), is_power_of_two_(std::has_single_bit(static_cast<std::uint64_t>(granularity))) {}
  [[nodiscard]] Bytes operator()(Bytes size) const {
    return is_power_of_two_ ? Bytes{(size.value() + granularity_ - 1) & -granularity_} : round_up(size, granularity_);
  }

 private:
  std::int64_t granularity_;
  bool is_power_of_two_;
};

AllocationChange change(const Buffer& buffer, Bytes bytes, OpId op) {
  return {.bytes = bytes, .op = op, .pool = static_cast<std::int16_t>(buffer.pool.index), .category = buffer.category, .host = buffer.host};
}

class MemoryFold {
 public:
  explicit MemoryFold(std::size_t pools) : pools_(pools) {}

  /// What is alive before the step.
  void begin(std::span<const AllocationChange> changes) {
    for (const AllocationChange& c : changes) total_ += add(c);
    memory_.before = held_;
    note_peak(OpId{});
  }

  void fold(std::span<const AllocationChange> changes) {
    Bytes total = total_, peak = memory_.peak;  // in registers: these two are all that most changes meet
    for (const AllocationChange& c : changes) {
      total += add(c);
      if (total <= peak) continue;
      total_ = peak = total;
      note_peak(c.op);
    }
    total_ = total;
  }

  void note_persistent() {
    for (Category c : {Category::parameters, Category::gradients, Category::optimizer_states})
      memory_.persistent[static_cast<std::size_t>(c)] = held_[static_cast<std::size_t>(c)];
  }

  Memory finish() && {
    memory_.resident = total_;
    for (const Pool& pool : pools_) memory_.reserved_peak += round_up(pool.peak, segment_step);
    return std::move(memory_);
  }

 private:
  struct Pool {
    Bytes held, peak;
  };

  /// Returns the change of the device's memory.
  Bytes add(const AllocationChange& c) {
    if (c.host) {
      pinned_ += c.bytes;
      memory_.host_pinned = std::max(memory_.host_pinned, pinned_);
      return {};
    }
    held_[static_cast<std::size_t>(c.category)] += c.bytes;
    Pool& pool = pools_[static_cast<std::size_t>(c.pool)];
    pool.held += c.bytes;
    pool.peak = std::max(pool.peak, pool.held);
    return c.bytes;
  }

  void note_peak(OpId op) {
    memory_.peak = total_;
    memory_.peak_op = op;
    memory_.at_peak = held_;
  }

  std::vector<Pool> pools_;  // by stream
  ByCategory held_{};
  Bytes total_, pinned_;
  Memory memory_;
};

/// The step's ops are the last.
OpId first_of_step(const Schedule& schedule) {
  const auto before = std::find_if(schedule.ops.rbegin(), schedule.ops.rend(), [](const Op& op) { return op.phase != Phase::step; });
  return OpId{static_cast<std::int32_t>(schedule.ops.rend() - before)};
}

}  // namespace

std::vector<AllocationChange> allocation_changes(const Schedule& schedule, std::int64_t granularity) {
  const Rounding rounded(granularity);
  std::vector<AllocationChange> changes;
  changes.reserve(2 * schedule.buffers.size());  // most are allocated once and freed once
  std::vector<bool> allocated(schedule.buffers.size());
  for (std::size_t i = 0; i < schedule.ops.size(); ++i) {
    const Action& action = schedule.ops[i].action;
    const OpId op{static_cast<std::int32_t>(i)};
    if (const auto* allocation = std::get_if<Allocate>(&action)) {
      const Buffer& buffer = schedule.at(allocation->buffer);
      changes.push_back(change(buffer, rounded(buffer.size()), op));
      if (buffer.persistent) allocated[static_cast<std::size_t>(allocation->buffer.index)] = true;
    } else if (const auto* release = std::get_if<Free>(&action)) {
      const Buffer& buffer = schedule.at(release->buffer);
      changes.push_back(change(buffer, -1 * rounded(buffer.size()), op));
    }
  }
  std::vector<AllocationChange> before;  // as initially_alive() has it
  for (std::size_t i = 0; i < schedule.buffers.size(); ++i) {
    const Buffer& buffer = schedule.buffers[i];
    if (buffer.persistent && !buffer.view_of.valid() && !allocated[i]) before.push_back(change(buffer, rounded(buffer.size()), OpId{}));
  }
  changes.insert(changes.begin(), before.begin(), before.end());
  return changes;
}

Memory fold_memory(const Schedule& schedule, std::span<const AllocationChange> changes) {
  const auto from = [&](OpId op) {
    return std::partition_point(changes.begin(), changes.end(), [&](const AllocationChange& c) { return c.op < op; });
  };
  const auto forward = from(OpId{0}), step = from(first_of_step(schedule));
  MemoryFold fold(schedule.streams.size());
  fold.begin({changes.begin(), forward});
  fold.fold({forward, step});
  fold.note_persistent();
  fold.fold({step, changes.end()});
  Memory memory = std::move(fold).finish();
  memory.peak_at = describe_peak(schedule, memory.peak_op);
  if (memory.peak_op.valid()) memory.peak_phase = schedule.at(memory.peak_op).phase;
  return memory;
}

Memory fold_memory(const Schedule& schedule, std::int64_t granularity) {
  return fold_memory(schedule, allocation_changes(schedule, granularity));
}

MemoryTimeline memory_timeline(AllocationChanges changes, const Timeline& timeline) {
  std::vector<SimTime> times(changes->size());
  auto change = changes->begin();
  auto time = times.begin();
  for (const Slice& slice : timeline.slices) {
    if (slice.stream.index != 0) continue;
    for (; change != changes->end() && change->op < slice.op; ++change) *time++ = slice.begin;  // ops of a stream run in order
  }
  std::fill(time, times.end(), timeline.end);
  return {std::move(changes), std::move(times)};
}

std::string describe_peak(const Schedule& schedule, OpId op) {
  if (!op.valid()) return "before the step: nothing allocated later adds to it";
  const Op& at = schedule.at(op);
  const std::string label = to_text(at.label, schedule);
  if (at.phase == Phase::step) return fmt::format("{}, optimizer step", label);
  return fmt::format("{}, {} of micro-batch {}", label, name_of(at.phase), at.micro_batch);
}

}  // namespace shardsim
