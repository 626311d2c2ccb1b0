// SPDX-License-Identifier: Apache-2.0
// The element-wise optimizers, on fp32 values.
#pragma once

#include <span>

#include "calibrate/execute/training/math.hpp"
#include "sim/schedule/schedule.hpp"

namespace shardsim::execute {

struct OptimizerConstants {
  float learning_rate = 2e-3F;
  float beta1 = 0.9F, beta2 = 0.95F;
  float epsilon = 1e-8F;
  float weight_decay = 0.01F;  ///< of adamw, on all parameters
  float momentum = 0.9F;
  float sgd_learning_rate = 0.1F;
};

/// Is the optimizer one that `update` knows (sgd, momentum, adam, adamw)?
[[nodiscard]] bool is_executed(OptimizerKind kind);

/// What `update` does in one step; `step` counts from 1. Throws std::logic_error for optimizers that are not executed.
[[nodiscard]] UpdateRule rule_of(OptimizerKind kind, const OptimizerConstants& constants, std::int64_t step);

/// One step over some elements. Moments that the optimizer does not have are empty.
/// Sources: torch/optim/{sgd,adam,adamw}.py, single-tensor forms.
void update(const UpdateRule& rule, std::span<float> parameters, std::span<const float> gradients, std::span<float> first,
            std::span<float> second);

}  // namespace shardsim::execute
