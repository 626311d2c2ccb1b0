// SPDX-License-Identifier: Apache-2.0
// Memory over the step: a fold over the Schedule in host order.
#pragma once

#include "sim/core/profile.hpp"
#include "sim/engine/result.hpp"

namespace shardsim {

/// Allocated memory by category, its peak and breakdown, persistent and resident bytes. Sizes are rounded up to the allocator's
/// `granularity` (512 bytes on CUDA, 1 to count exact bytes). with `keep_points` every change is kept
/// for charts and traces, at the time when the default stream of `timeline` gets there.
/// Reserved memory follows the simple rule of one pool a stream: the sum of each pool's own peak, rounded up to 2 MiB.
[[nodiscard]] Memory fold_memory(const Schedule& schedule, const Timeline* timeline, std::int64_t granularity = 512, bool keep_points = false);

/// "unsharded(model.layers.31), backward of micro-batch 1": where in the step an allocation stands.
[[nodiscard]] std::string describe_peak(const Schedule& schedule, OpId op);

}  // namespace shardsim
