// SPDX-License-Identifier: Apache-2.0
// A schedule's allocations through the allocator's model.
#pragma once

#include "sim/memory/allocator.hpp"
#include "sim/memory/memory.hpp"

namespace shardsim {

struct AllocatorReplay {
  AllocatorBytes peak;
  ByCategory at_peak{};  ///< blocks handed out when `peak.allocated` was reached, by what they are for
  std::int64_t retries = 0;
  std::int64_t driver_calls = 0;  ///< of the last step, if it emptied the cache: without that a job comes to rest
  bool out_of_memory = false;     ///< the reserved peak is what would have been needed
};

/// Replays `steps` steps one after the other: the second meets a cache that the first has filled, which is where fragmentation shows.
/// Persistent buffers come first. `timeline` gives the host's time of each allocation and when streams have passed a record_stream'ed
/// block. `workspace` is held all the time (cuBLAS).
[[nodiscard]] AllocatorReplay replay_allocations(const Schedule& schedule, const Timeline& timeline, const AllocatorOptions& options,
                                                 Bytes workspace = {}, int steps = 2);

/// Whether any time bears on that: whether a block is freed that another stream still uses (record_stream).
[[nodiscard]] bool allocations_depend_on_time(const Schedule& schedule);

}  // namespace shardsim
