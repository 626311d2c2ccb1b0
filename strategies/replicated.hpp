// SPDX-License-Identifier: Apache-2.0
// Parameters, gradients and optimizer of the strategies that keep a full copy of everything on every rank: naive DP, DDP and their kin.
#pragma once

#include <vector>

#include "strategies/hooks.hpp"
#include "strategies/optimizer_step.hpp"
#include "strategies/sharding.hpp"

namespace shardsim {

class Replicated {
 public:
  /// Declares the stored parameters (frozen ones apart) and, where the precision asks for one, the optimizer's master copy.
  explicit Replicated(Program& program);

  /// Declares the optimizer's states over all trainable parameters.
  void add_optimizer();

  /// The `.grad` of a parameter: allocated when autograd first writes it, kept until zero_grad.
  [[nodiscard]] BufferId gradient(ParameterId parameter);
  [[nodiscard]] bool has_gradient(ParameterId parameter) const { return gradients_[static_cast<std::size_t>(parameter.index)].valid(); }
  /// Ends the life of one `.grad` early (its content moved elsewhere).
  void free_gradient(ParameterId parameter);

  /// Optimizer step on the gradients held here, update of the stored copy, zero_grad.
  void step();
  /// The same on gradients that live in other buffers (buckets).
  void step(const OptimizerStep::Gradients& gradients);

  [[nodiscard]] const std::vector<ParameterId>& trainable() const { return trainable_; }
  [[nodiscard]] BufferId parameters() const { return parameters_; }
  [[nodiscard]] DType gradient_dtype() const { return program_.training().precision.gradients; }
  [[nodiscard]] OptimizerStep& optimizer() { return optimizer_; }

 private:
  [[nodiscard]] BufferId declare(const char* verb, Category category, Role role, DType dtype, const std::vector<ParameterId>& ids);
  void update(const OptimizerStep::Gradients& gradients);

  Program& program_;
  std::vector<ParameterId> trainable_;
  BufferId parameters_, frozen_, master_;
  std::vector<BufferId> gradients_;  // by parameter
  OptimizerStep optimizer_;
};

}  // namespace shardsim
