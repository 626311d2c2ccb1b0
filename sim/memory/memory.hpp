// SPDX-License-Identifier: Apache-2.0
// Memory over the step: a fold over the Schedule in host order.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/schedule/schedule.hpp"
#include "sim/schedule/timeline.hpp"

namespace shardsim {

using ByCategory = std::array<Bytes, category_count>;
[[nodiscard]] inline Bytes sum(const ByCategory& by) {
  Bytes s;
  for (Bytes b : by) s += b;
  return s;
}

/// What an op does to the allocated memory; of no op where a buffer is alive before the step.
struct AllocationChange {
  Bytes bytes;  ///< less than zero: freed
  OpId op{};
  std::int16_t pool = 0;  ///< stream whose pool it is
  Category category = Category::temporaries;
  bool host = false;  ///< pinned host memory
};
using AllocationChanges = std::shared_ptr<const std::vector<AllocationChange>>;

/// The changes are the schedule's, in host order; the times are the replay's, one for each change.
struct MemoryTimeline {
  AllocationChanges changes;
  std::vector<SimTime> times;  ///< when the default stream gets there
};

struct Memory {
  Bytes peak;
  OpId peak_op;         ///< the allocation that reached it
  std::string peak_at;  ///< "FSDP::copy_out(model.layers.31), backward of micro-batch 1"
  Phase peak_phase = Phase::forward;
  Bytes capacity;
  bool fits = true;
  ByCategory persistent{};  ///< parameters, gradients and states alive together at the end of backward
  Bytes resident;           ///< allocated after the step
  ByCategory at_peak{};
  ByCategory before{};  ///< allocated when the step begins
  Bytes reserved_peak;
  Bytes overhead;
  Bytes device_peak;
  Bytes host_pinned;                   ///< pinned host memory of the rank (offload)
  Bytes host_pinned_node;              ///< of all ranks of a node
  Bytes host_capacity;                 ///< DRAM of a node; none: not known
  std::int64_t allocator_retries = 0;  ///< times that the caching allocator gives its cache back to the driver
  MemoryTimeline timeline;             ///< filled when asked for
};

/// Calls visit(time, op, allocated) after each change of device memory in the step.
template <class Visit>
void visit_states(const Memory& memory, Visit visit) {
  ByCategory allocated = memory.before;
  for (std::size_t i = 0; i < memory.timeline.times.size(); ++i) {
    const AllocationChange& change = (*memory.timeline.changes)[i];
    if (change.host || !change.op.valid()) continue;
    allocated[static_cast<std::size_t>(change.category)] += change.bytes;
    visit(memory.timeline.times[i], change.op, allocated);
  }
}

/// In host order. Sizes are rounded up to the allocator's `granularity` (512 bytes on CUDA, 1 to count exact bytes).
[[nodiscard]] std::vector<AllocationChange> allocation_changes(const Schedule& schedule, std::int64_t granularity = 512);

/// Allocated memory by category, its peak and breakdown, persistent and resident bytes. Reserved memory follows the simple rule of one
/// pool a stream: the sum of each pool's own peak, rounded up to 2 MiB. `changes` are the schedule's.
[[nodiscard]] Memory fold_memory(const Schedule& schedule, std::span<const AllocationChange> changes);
[[nodiscard]] Memory fold_memory(const Schedule& schedule, std::int64_t granularity = 512);

/// When each change happens, for charts and traces. A host that runs far ahead issues the whole step in its first moments; changes are
/// therefore placed where the default stream of `timeline` gets to: at the begin of its next op. Their order, and with it every figure,
/// stays the host's.
[[nodiscard]] MemoryTimeline memory_timeline(AllocationChanges changes, const Timeline& timeline);

/// "unsharded(model.layers.31), backward of micro-batch 1": where in the step an allocation stands.
[[nodiscard]] std::string describe_peak(const Schedule& schedule, OpId op);

}  // namespace shardsim
