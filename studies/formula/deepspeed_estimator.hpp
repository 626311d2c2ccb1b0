// SPDX-License-Identifier: Apache-2.0
// What DeepSpeed's own memory estimators print, by their documentation's rule and by their code's.
#pragma once

#include <string>
#include <vector>

#include "sim/base/units.hpp"

namespace shardsim {

struct EstimatorInput {
  Elements parameters;
  Elements largest_layer;
  std::int64_t gpus_per_node = 1;
  std::int64_t nodes = 1;
};

struct EstimatorRow {
  int stage = 3;
  std::string offload;   ///< "none", "optimizer", "optimizer and parameters"
  Bytes gpu;             ///< of each GPU, as the code has it
  Bytes gpu_documented;  ///< as the documentation has it
  Bytes cpu;             ///< of each node, with zero.Init where it matters
  std::string gpu_rule;
  std::string documented_rule;
};

/// Sources: deepspeed/runtime/zero/stage_1_and_2.py, estimate_zero2_model_states_mem_needs; stage3.py,
/// estimate_zero3_model_states_mem_needs (additional_buffer_factor 1.5, zero_init); docs/code-docs/source/memory.rst.
/// The estimators print these in units of 2^30 bytes and call them GB.
[[nodiscard]] std::vector<EstimatorRow> deepspeed_estimates(const EstimatorInput& input);

}  // namespace shardsim
