// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/optimizer.hpp"

#include <cmath>
#include <stdexcept>

namespace shardsim::execute {

bool is_executed(OptimizerKind kind) {
  return kind == OptimizerKind::sgd || kind == OptimizerKind::momentum || kind == OptimizerKind::adam || kind == OptimizerKind::adamw;
}

void update(OptimizerKind kind, const OptimizerConstants& c, std::int64_t step, std::span<float> parameters, std::span<const float> gradients,
            std::span<float> first, std::span<float> second) {
  if (!is_executed(kind)) throw std::logic_error("this optimizer is not executed");
  const bool adaptive = kind == OptimizerKind::adam || kind == OptimizerKind::adamw;
  const auto t = static_cast<float>(step);
  const float correction1 = 1.0F - std::pow(c.beta1, t), correction2 = 1.0F - std::pow(c.beta2, t);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float g = gradients[i];
    if (!adaptive) {
      float direction = g;
      if (kind == OptimizerKind::momentum) direction = first[i] = c.momentum * first[i] + g;
      parameters[i] -= c.sgd_learning_rate * direction;
      continue;
    }
    if (kind == OptimizerKind::adamw) parameters[i] *= 1.0F - c.learning_rate * c.weight_decay;
    first[i] += (1.0F - c.beta1) * (g - first[i]);
    second[i] = c.beta2 * second[i] + (1.0F - c.beta2) * g * g;
    parameters[i] -= c.learning_rate / correction1 * first[i] / (std::sqrt(second[i] / correction2) + c.epsilon);
  }
}

}  // namespace shardsim::execute
