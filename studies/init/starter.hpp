// SPDX-License-Identifier: Apache-2.0
// The first scenario of somebody's own: from a model, a number of GPUs and the framework that trains it, as commented YAML.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/machine/profile.hpp"

namespace shardsim {

struct StarterChoice {
  std::string model = "llama-3-8b";      ///< a preset, or a config.json as it is to stand in the scenario
  std::int64_t gpus = 8;                 ///< in all
  std::string gpu = "h100-sxm";          ///< a shipped profile, a product ("H100", "RTX 4090"), or a file
  std::string framework = "torchtitan";  ///< a word of starter_frameworks(), or a strategy
  bool gpu_was_said = true;
};

/// Frameworks that `init` knows, each with the strategy that it is usually run with.
[[nodiscard]] std::vector<std::string> starter_frameworks();

/// The profile that a user means with "H100", "h100-sxm" or "8xH100"; an InputError with the nearest names where there is none.
[[nodiscard]] std::string profile_meant(const std::string& gpu);

/// The shipped profile of a GPU by the name that its driver gives; an InputError where there is none.
[[nodiscard]] std::string profile_for_gpu(const std::string& driver_name);

/// "8", "8xH100", "8 x h100-sxm", "h100-sxm": a number of GPUs, a product, or both.
void read_gpus(const std::string& text, StarterChoice& choice);

/// The scenario; an InputError where the choice makes no sense.
[[nodiscard]] std::string starter_scenario(const StarterChoice& choice);

}  // namespace shardsim
