// SPDX-License-Identifier: Apache-2.0
// Parameters, gradients and optimizer of the strategies that keep a full copy of everything on every rank: naive DP, DDP and their kin.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "strategies/hooks.hpp"
#include "strategies/shared/optimizer_step.hpp"
#include "strategies/shared/sharding.hpp"

namespace shardsim {

class Replicated;

/// Which part of the optimizer's work a rank does itself (ZeroRedundancyOptimizer); by default all of it.
struct LocalUpdate {
  std::vector<ParameterId> storage{};  ///< order of the trainable parameters in memory
  std::vector<ParameterId> updated{};  ///< parameters whose states this rank holds: neighbours in `storage`, in its order
  std::function<void(BufferId parameters)> synchronize{};  ///< after the local step; none: this rank updates all
  /// Overlapped with DDP: called for each bucket, in order, once backward has launched the last one; the step itself then updates nothing.
  std::function<void(const Replicated&, std::size_t bucket, BufferId gradients, OpId reduced)> step_bucket{};
};

class Replicated {
 public:
  /// Declares the stored parameters (frozen ones apart) and, where the precision asks for one, the optimizer's master copy.
  explicit Replicated(Program& program, LocalUpdate local = {});

  /// Declares the optimizer's states over the parameters that this rank updates.
  void add_optimizer();

  /// The `.grad` of a parameter: allocated when autograd first writes it, kept until zero_grad; `moves`: only until free_gradient.
  [[nodiscard]] BufferId gradient(ParameterId parameter, bool moves = false);
  [[nodiscard]] bool has_gradient(ParameterId parameter) const { return gradients_[static_cast<std::size_t>(parameter.index)].valid(); }
  /// Ends the life of one `.grad` early (its content moved elsewhere).
  void free_gradient(ParameterId parameter);

  /// Optimizer step on the gradients held here, update of the stored copy, zero_grad.
  void step();
  /// The same on gradients that live in other buffers (buckets): all of them are clipped, `own` are those that this rank updates with.
  void step(const OptimizerStep::Gradients& all, const OptimizerStep::Gradients& own);
  [[nodiscard]] bool updates(ParameterId parameter) const { return updated_[static_cast<std::size_t>(parameter.index)]; }

  /// What this rank holds of the trainable parameters: all, but for routed experts of other ranks.
  [[nodiscard]] const std::vector<ParameterId>& trainable() const { return trainable_; }
  [[nodiscard]] BufferId parameters() const { return parameters_; }
  [[nodiscard]] bool overlapped() const { return static_cast<bool>(local_.step_bucket); }
  void step_bucket(std::size_t bucket, BufferId gradients, OpId reduced) const { local_.step_bucket(*this, bucket, gradients, reduced); }
  /// Of what trains: adapters may have a dtype of their own.
  [[nodiscard]] DType gradient_dtype() const { return own_dtype_.value_or(program_.training().precision.gradients); }
  [[nodiscard]] OptimizerStep& optimizer() { return optimizer_; }

 private:
  [[nodiscard]] BufferId view_of_updated();
  [[nodiscard]] BufferId declare(const char* verb, Category category, Role role, DType dtype, const std::vector<ParameterId>& ids);

  Program& program_;
  std::optional<DType> own_dtype_;
  LocalUpdate local_;
  std::vector<ParameterId> trainable_;
  std::vector<bool> updated_;  // by parameter
  BufferId parameters_, frozen_, master_;
  std::vector<BufferId> gradients_;  // by parameter
  OptimizerStep optimizer_;
};

}  // namespace shardsim
