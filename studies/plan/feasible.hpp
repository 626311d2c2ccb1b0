// SPDX-License-Identifier: Apache-2.0
// Which ways to run a job are worth naming: what its library has, what makes sense for its model and world, and what leaves memory free.
#pragma once

#include <string>

#include "scenarios/reader/scenario.hpp"
#include "sim/engine/result.hpp"

namespace shardsim {

/// "PyTorch", "DeepSpeed", "Megatron-Core": the code base that a strategy is of.
[[nodiscard]] std::string library_of(const std::string& strategy);
[[nodiscard]] bool same_library(const std::string& strategy, const std::string& other);

/// Would somebody train this model with it? A library for pre-training is no answer for adapters or for one GPU.
[[nodiscard]] bool makes_sense(const std::string& strategy, const Scenario& scenario, std::int64_t gpus = 2);

/// Fits with `headroom` (a share of device and host memory) to spare, and without the allocator giving its cache back.
[[nodiscard]] bool fits_with(const Memory& memory, double headroom);

}  // namespace shardsim
