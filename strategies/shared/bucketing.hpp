// SPDX-License-Identifier: Apache-2.0
// How libraries group gradients for one collective: two rules, and where each is used.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shardsim {

/// Positions [begin, end) of one bucket in the list that was grouped.
struct BucketRange {
  std::size_t begin = 0, end = 0;
};

/// Append, then close when the bucket's size has reached the current limit; the limits advance bucket by bucket and the last one repeats.
/// A bucket may exceed its limit by one item. No limit: one bucket.
/// Sources: c10d reducer.cpp, compute_bucket_assignment_by_size (DDP; sizes in bytes); Megatron param_and_grad_buffer.py (elements).
[[nodiscard]] std::vector<BucketRange> close_when_full(std::span<const std::int64_t> sizes, std::span<const std::int64_t> limits);

/// Flush before an item would make the bucket exceed the limit; an item larger than the limit stands alone.
/// Sources: DeepSpeed stage_1_and_2.py (reduce_independent_p_g_buckets_and_remove_grads; elements), stage3.py, OLMo-core distributed.py
/// (bytes).
[[nodiscard]] std::vector<BucketRange> flush_before_exceeding(std::span<const std::int64_t> sizes, std::int64_t limit);

}  // namespace shardsim
