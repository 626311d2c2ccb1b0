// SPDX-License-Identifier: Apache-2.0
// The same training on one rank with the whole batch: what every strategy must come to.
#pragma once

#include <vector>

#include "calibrate/execute/training/batch.hpp"
#include "models/model.hpp"

namespace shardsim::execute {

/// Losses and gradients by step. Parameters, activations and moments have the dtypes of the job; gradients are summed in fp32 over the
/// sequences of the global batch, in its order, and never rounded.
struct Reference {
  std::vector<double> losses;                              ///< mean over the global batch
  std::vector<std::vector<std::vector<float>>> gradients;  ///< by step, parameter, element; empty for frozen parameters
};

[[nodiscard]] Reference train_alone(const Model& model, const Training& training, const BatchShares& shares, int steps);

/// The vocabulary that tokens are drawn from: rows of the first table.
[[nodiscard]] std::int64_t vocabulary_of(const Model& model);

/// Tokens of one micro-batch of one rank.
[[nodiscard]] std::vector<std::vector<std::int32_t>> micro_batch_tokens(const Model& model, const Training& training,
                                                                        const BatchShares& shares, std::int64_t step, std::int64_t rank,
                                                                        std::int64_t micro_batch);

}  // namespace shardsim::execute
