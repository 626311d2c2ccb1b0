// SPDX-License-Identifier: Apache-2.0
// Main gradients: libraries that accumulate in a buffer of their own, in fp32 by default, keep autograd's gradients for a moment only.
// Shared by Megatron-Core (main_grad) and OLMo-core's DDP.
#pragma once

#include <vector>

#include "strategies/hooks.hpp"

namespace shardsim {

/// fp32 for bf16 models unless told otherwise (`--bf16` sets accumulate_allreduce_grads_in_fp32); a precision spelled out by the user is
/// taken at its word.
[[nodiscard]] DType main_gradient_dtype(const Job& job);

class MainGradients {
 public:
  explicit MainGradients(Program& program) : program_(program), gradients_(program.model().parameters->size()) {}

  /// Memory for the gradient that autograd is about to write.
  void produce(ParameterId p);
  /// main_grad.add_(grad); grad = None.
  void add_to(BufferId main_grad, ParameterId p);

 private:
  Program& program_;
  std::vector<BufferId> gradients_;  // by parameter
};

}  // namespace shardsim
