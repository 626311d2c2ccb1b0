// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <span>
#include <stdexcept>
#include <utility>

namespace shardsim {
namespace {

constexpr std::int64_t segment_step = std::int64_t{2} << 20;  // cudaMalloc's requests are multiples of 2 MiB

class MemoryFold {
 public:
  MemoryFold(const Schedule& schedule, std::int64_t granularity)
      : schedule_(schedule), granularity_(granularity), is_power_of_two_(std::has_single_bit(static_cast<std::uint64_t>(granularity))),
        pools_(schedule.streams.size()) {}

  /// By op, when the default stream gets there; keeps points if given.
  void keep_points_at(std::vector<SimTime> reached) {
    reached_ = std::move(reached);
    memory_.timeline.reserve(2 * schedule_.buffers.size());  // most are allocated once and freed once
  }

  Memory run() && {
    find_changes();
    for (std::size_t i = 0; i < alive_first_.size(); ++i)
      if (alive_first_[i]) change(schedule_.buffers[i], 1);
    note_peak(OpId{});
    const std::int32_t first = first_of_step();
    const auto step = std::partition_point(changes_.begin(), changes_.end(), [&](const Change& c) { return c.op < first; });
    reached_.empty() ? fold<false>({changes_.begin(), step}) : fold<true>({changes_.begin(), step});
    note_persistent();
    reached_.empty() ? fold<false>({step, changes_.end()}) : fold<true>({step, changes_.end()});
    memory_.resident = total_;
    for (const Pool& pool : pools_) memory_.reserved_peak += round_up(pool.peak, segment_step);
    return std::move(memory_);
  }

 private:
  /// An op that allocates or frees.
  struct Change {
    std::int32_t op, buffer;
    bool frees;
  };
  struct Pool {
    Bytes held, peak;
  };

  /// The ops are walked once: they fill a cache several times over, their changes do not.
  void find_changes() {
    changes_.reserve(2 * schedule_.buffers.size());
    alive_first_.resize(schedule_.buffers.size());
    for (std::size_t i = 0; i < alive_first_.size(); ++i)
      alive_first_[i] = schedule_.buffers[i].persistent && !schedule_.buffers[i].view_of.valid();
    for (std::size_t i = 0; i < schedule_.ops.size(); ++i) {
      const Action& action = schedule_.ops[i].action;
      const auto op = static_cast<std::int32_t>(i);
      if (const auto* allocation = std::get_if<Allocate>(&action)) {
        changes_.push_back({op, allocation->buffer.index, false});
        alive_first_[static_cast<std::size_t>(allocation->buffer.index)] = 0;
      } else if (const auto* release = std::get_if<Free>(&action)) {
        changes_.push_back({op, release->buffer.index, true});
      }
    }
  }

  /// The step's ops are the last.
  [[nodiscard]] std::int32_t first_of_step() const {
    const auto& ops = schedule_.ops;
    const auto before = std::find_if(ops.rbegin(), ops.rend(), [](const Op& op) { return op.phase != Phase::step; });
    return static_cast<std::int32_t>(ops.rend() - before);
  }

  template <bool points>
  void fold(std::span<const Change> changes) {
    for (const Change& c : changes) {
      const Buffer& buffer = schedule_.buffers[static_cast<std::size_t>(c.buffer)];
      change(buffer, c.frees ? -1 : 1);
      if (total_ > memory_.peak) note_peak(OpId{c.op});
      if constexpr (points)
        if (!buffer.host) memory_.timeline.push_back({reached_[static_cast<std::size_t>(c.op)], OpId{c.op}, held_});
    }
  }

  void change(const Buffer& buffer, std::int64_t sign) {
    const Bytes size = sign * rounded(buffer.size());
    if (buffer.host) {
      pinned_ += size;
      memory_.host_pinned = std::max(memory_.host_pinned, pinned_);
      return;
    }
    held_[static_cast<std::size_t>(buffer.category)] += size;
    total_ += size;
    Pool& pool = pools_[static_cast<std::size_t>(buffer.pool.index)];
    pool.held += size;
    pool.peak = std::max(pool.peak, pool.held);
  }

  /// A division a change would be a third of the fold.
  [[nodiscard]] Bytes rounded(Bytes size) const {
    return is_power_of_two_ ? Bytes{(size.value() + granularity_ - 1) & -granularity_} : round_up(size, granularity_);
  }

  void note_peak(OpId op) {
    memory_.peak = total_;
    memory_.peak_op = op;
    memory_.at_peak = held_;
  }

  void note_persistent() {
    for (Category c : {Category::parameters, Category::gradients, Category::optimizer_states})
      memory_.persistent[static_cast<std::size_t>(c)] = held_[static_cast<std::size_t>(c)];
  }

  const Schedule& schedule_;
  std::vector<SimTime> reached_;  // by op; empty: no points are kept
  std::int64_t granularity_;
  bool is_power_of_two_;
  std::vector<Change> changes_;
  std::vector<char> alive_first_;  // by buffer, as initially_alive() has it
  std::vector<Pool> pools_;        // by stream
  ByCategory held_{};
  Bytes total_, pinned_;
  Memory memory_;
};

/// A host that runs far ahead issues the whole step in its first moments. Points are therefore placed where the default stream gets to:
/// at the begin of its next op. Their order, and with it every figure, stays the host's.
std::vector<SimTime> reached_by_default_stream(const Schedule& schedule, const Timeline& timeline) {
  std::vector<SimTime> reached(schedule.ops.size());
  auto end = reached.end();
  SimTime next = timeline.end;
  for (auto slice = timeline.slices.rbegin(); slice != timeline.slices.rend(); ++slice) {
    if (slice->stream.index != 0) continue;
    const auto behind = reached.begin() + slice->op.index + 1;
    std::fill(behind, end, next);
    end = behind;
    next = slice->begin;
  }
  std::fill(reached.begin(), end, next);
  return reached;
}

}  // namespace

Memory fold_memory(const Schedule& schedule, const Timeline* timeline, std::int64_t granularity, bool keep_points) {
  MemoryFold fold(schedule, granularity);
  if (keep_points && timeline != nullptr) fold.keep_points_at(reached_by_default_stream(schedule, *timeline));
  Memory memory = std::move(fold).run();
  memory.peak_at = describe_peak(schedule, memory.peak_op);
  if (memory.peak_op.valid()) memory.peak_phase = schedule.at(memory.peak_op).phase;
  return memory;
}

std::string describe_peak(const Schedule& schedule, OpId op) {
  if (!op.valid()) return "before the step: nothing allocated later adds to it";
  const Op& at = schedule.at(op);
  const std::string label = to_text(at.label, schedule);
  if (at.phase == Phase::step) return fmt::format("{}, optimizer step", label);
  return fmt::format("{}, {} of micro-batch {}", label, name_of(at.phase), at.micro_batch);
}

}  // namespace shardsim
