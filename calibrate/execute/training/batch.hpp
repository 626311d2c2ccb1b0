// SPDX-License-Identifier: Apache-2.0
// Synthetic text: the same global batch however many ranks, micro-batches and accumulation steps share it.
#pragma once

#include <cstdint>
#include <vector>

#include "models/training.hpp"

namespace shardsim::execute {

/// How a global batch is shared out.
struct BatchShares {
  std::int64_t ranks = 1;
  std::int64_t micro_batches = 1;  ///< of each rank
  std::int64_t sequences = 1;      ///< of each micro-batch
  [[nodiscard]] std::int64_t global() const { return ranks * micro_batches * sequences; }
  /// Position in the global batch of a rank's sequence: ranks take turns by micro-batch.
  [[nodiscard]] std::int64_t index(std::int64_t rank, std::int64_t micro_batch, std::int64_t sequence) const {
    return (micro_batch * ranks + rank) * sequences + sequence;
  }
};

/// Tokens 0 ... length of one sequence (one more than the length: the last is only a target): a noisy walk through the vocabulary, which
/// a model can learn. Depends on step and index alone.
[[nodiscard]] std::vector<std::int32_t> sequence_tokens(std::int64_t step, std::int64_t index, std::int64_t length,
                                                        std::int64_t vocabulary);

/// Start values of parameter `parameter`: ones for norms, zeros for biases, else uniform with standard deviation 0.5 / sqrt(fan-in).
[[nodiscard]] std::vector<float> start_values(std::int64_t parameter, const std::string& name, const std::vector<std::int64_t>& shape);

}  // namespace shardsim::execute
