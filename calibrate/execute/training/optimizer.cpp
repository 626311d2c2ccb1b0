// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/training/optimizer.hpp"

#include <cmath>
#include <stdexcept>

namespace shardsim::execute {

bool is_executed(OptimizerKind kind) {
  return kind == OptimizerKind::sgd || kind == OptimizerKind::momentum || kind == OptimizerKind::adam || kind == OptimizerKind::adamw;
}

UpdateRule rule_of(OptimizerKind kind, const OptimizerConstants& c, std::int64_t step) {
  if (!is_executed(kind)) throw std::logic_error("this optimizer is not executed");
  UpdateRule rule;
  rule.adaptive = kind == OptimizerKind::adam || kind == OptimizerKind::adamw;
  rule.momentum = kind == OptimizerKind::momentum;
  rule.decoupled_decay = kind == OptimizerKind::adamw;
  rule.learning_rate = rule.adaptive ? c.learning_rate : c.sgd_learning_rate;
  rule.beta1 = c.beta1;
  rule.beta2 = c.beta2;
  rule.epsilon = c.epsilon;
  rule.weight_decay = c.weight_decay;
  rule.momentum_factor = c.momentum;
  const auto t = static_cast<float>(step);
  rule.correction1 = 1.0F - std::pow(c.beta1, t);
  rule.correction2 = 1.0F - std::pow(c.beta2, t);
  return rule;
}

void update(const UpdateRule& rule, std::span<float> parameters, std::span<const float> gradients, std::span<float> first,
            std::span<float> second) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float g = gradients[i];
    if (!rule.adaptive) {
      float direction = g;
      if (rule.momentum) direction = first[i] = rule.momentum_factor * first[i] + g;
      parameters[i] -= rule.learning_rate * direction;
      continue;
    }
    if (rule.decoupled_decay) parameters[i] *= 1.0F - rule.learning_rate * rule.weight_decay;
    first[i] += (1.0F - rule.beta1) * (g - first[i]);
    second[i] = rule.beta2 * second[i] + (1.0F - rule.beta2) * g * g;
    parameters[i] -= rule.learning_rate / rule.correction1 * first[i] / (std::sqrt(second[i] / rule.correction2) + rule.epsilon);
  }
}

}  // namespace shardsim::execute
