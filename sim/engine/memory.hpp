// SPDX-License-Identifier: Apache-2.0
// Memory over the step: a fold over the Schedule in host order.
#pragma once

#include <span>
#include <vector>

#include "sim/engine/result.hpp"

namespace shardsim {

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
