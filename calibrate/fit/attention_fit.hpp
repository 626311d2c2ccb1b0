// SPDX-License-Identifier: Apache-2.0
// Fits of measured attention kernels.
#pragma once

#include <vector>

#include "sim/machine/profile.hpp"

namespace shardsim {

/// A causal forward of `batch` sequences.
struct AttentionPoint {
  std::int64_t batch, sequence, heads, head_dim;
  Seconds time;
};
using AttentionPoints = std::vector<AttentionPoint>;

/// Launch and half_waves by search over a grid; for each the share at every measured head size and sequence length is the median of what
/// the points there imply. The pair with the least mean |log(predicted / measured)|, each at most 0.5, wins.
[[nodiscard]] AttentionModel fit_attention(const Gpu& gpu, const AttentionPoints& points);

/// Relative errors of the GPU's attention model.
[[nodiscard]] std::vector<double> attention_errors(const Gpu& gpu, const AttentionPoints& points);

/// Adds to `model` the head sizes that only `other` has, its shares times the median ratio of the two at common points.
struct AddedHeadSizes {
  std::vector<std::int64_t> heads;
  double ratio = 1;
};
AddedHeadSizes add_head_sizes(AttentionModel& model, const AttentionModel& other);

}  // namespace shardsim
