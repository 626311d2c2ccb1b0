// SPDX-License-Identifier: Apache-2.0
// A change of a scenario in the words of the tool that runs the job: a line of its configuration file.
#pragma once

#include <string>
#include <vector>

#include "scenarios/reader/scenario.hpp"

namespace shardsim {

/// The file or command whose words are used for a strategy: "ds_config.json", "accelerate's YAML", "torchtitan's TOML" ...
[[nodiscard]] std::string config_of(const Scenario& scenario);

/// One line for each assignment that the tool has a word for ("training.micro_batch_size=2", "strategy.reshard_after_forward=false"), as it
/// is written there; assignments without one are left out.
[[nodiscard]] std::vector<std::string> config_lines(const Scenario& scenario, const std::vector<std::string>& assignments);

}  // namespace shardsim
