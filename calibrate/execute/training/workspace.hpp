// SPDX-License-Identifier: Apache-2.0
// What the trainer computes on: parameters, gradients and activations, wherever they live. The machine keeps them in the buffers of a
// schedule, the reference in memory of its own; all numbers are those of the trainer's Math.
#pragma once

#include "calibrate/execute/training/math.hpp"
#include "models/model.hpp"
#include "sim/schedule/schedule.hpp"

namespace shardsim::execute {

/// The same tensor under the name its maker gives it: a layer's input is the output of the layer before.
[[nodiscard]] TensorRef producer_of(const Model& model, TensorRef tensor);

class Workspace {
 public:
  virtual ~Workspace() = default;

  /// A parameter as compute reads it, in fp32. Throws std::logic_error if it is not there: the schedule computes before it gathers.
  [[nodiscard]] virtual Numbers parameter(ParameterId parameter) = 0;
  /// Adds to the gradient of a trainable parameter.
  virtual void add_gradient(ParameterId parameter, const Numbers& values) = 0;

  /// Is there memory for a tensor (or its gradient) of the micro-batch under way?
  [[nodiscard]] virtual bool holds(TensorRef tensor) = 0;
  /// Its values. Throws std::logic_error if they are not there: the schedule frees before the last use.
  [[nodiscard]] virtual Numbers load(TensorRef tensor) = 0;
  /// Rounds to the tensor's dtype and keeps. Throws std::logic_error if there is no memory for it.
  virtual void store(TensorRef tensor, const Numbers& values) = 0;
};

}  // namespace shardsim::execute
