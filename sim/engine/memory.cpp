// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace shardsim {
namespace {

constexpr std::int64_t segment_step = std::int64_t{2} << 20;  // cudaMalloc's requests are multiples of 2 MiB

class MemoryFold {
 public:
  MemoryFold(const Schedule& schedule, const Timeline* timeline, std::int64_t granularity, bool keep_points)
      : schedule_(schedule), timeline_(timeline), granularity_(granularity), keep_points_(keep_points), pools_(schedule.streams.size()) {}

  Memory run() && {
    if (keep_points_ && timeline_ != nullptr) find_reached();
    const std::vector<bool> initial = initially_alive(schedule_);
    for (std::size_t i = 0; i < initial.size(); ++i)
      if (initial[i]) change(schedule_.buffers[i], schedule_.buffers[i].pool, 1);
    note_peak(OpId{});
    bool stepped = false;
    for (std::size_t i = 0; i < schedule_.ops.size(); ++i) {
      const Op& op = schedule_.ops[i];
      const OpId id{static_cast<std::int32_t>(i)};
      if (op.phase == Phase::step && !std::exchange(stepped, true)) note_persistent();
      if (const auto* allocation = std::get_if<Allocate>(&op.action))
        apply(id, schedule_.at(allocation->buffer), 1);
      else if (const auto* release = std::get_if<Free>(&op.action))
        apply(id, schedule_.at(release->buffer), -1);
    }
    if (!stepped) note_persistent();
    memory_.resident = total_;
    for (const Pool& pool : pools_) memory_.reserved_peak += round_up(pool.peak, segment_step);
    return std::move(memory_);
  }

 private:
  struct Pool {
    Bytes held, peak;
  };

  /// A host that runs far ahead issues the whole step in its first moments. Points are therefore placed where the default stream gets to:
  /// at the begin of its next op. Their order, and with it every figure, stays the host's.
  void find_reached() {
    reached_.assign(schedule_.ops.size() + 1, timeline_->end);
    for (const Slice& slice : timeline_->slices)
      if (slice.stream.index == 0) reached_[static_cast<std::size_t>(slice.op.index)] = slice.begin;
    for (std::size_t i = schedule_.ops.size(); i-- > 0;) reached_[i] = std::min(reached_[i], reached_[i + 1]);
  }

  void apply(OpId op, const Buffer& buffer, std::int64_t sign) {
    change(buffer, buffer.pool, sign);
    if (sign > 0 && total_ > memory_.peak) note_peak(op);
    if (keep_points_ && timeline_ != nullptr && !buffer.host)
      memory_.timeline.push_back({reached_[static_cast<std::size_t>(op.index)], op, held_});
  }

  void change(const Buffer& buffer, StreamId stream, std::int64_t sign) {
    const Bytes size = sign * round_up(buffer.size(), granularity_);
    if (buffer.host) {
      pinned_ += size;
      memory_.host_pinned = std::max(memory_.host_pinned, pinned_);
      return;
    }
    held_[static_cast<std::size_t>(buffer.category)] += size;
    total_ += size;
    Pool& pool = pools_[static_cast<std::size_t>(stream.index)];
    pool.held += size;
    pool.peak = std::max(pool.peak, pool.held);
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
  const Timeline* timeline_;
  std::vector<SimTime> reached_;  // by op
  std::int64_t granularity_;
  bool keep_points_;
  std::vector<Pool> pools_;  // by stream
  ByCategory held_{};
  Bytes total_, pinned_;
  Memory memory_;
};

}  // namespace

Memory fold_memory(const Schedule& schedule, const Timeline* timeline, std::int64_t granularity, bool keep_points) {
  Memory memory = MemoryFold(schedule, timeline, granularity, keep_points).run();
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
