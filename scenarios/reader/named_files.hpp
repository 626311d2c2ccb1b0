// SPDX-License-Identifier: Apache-2.0
// The files that a scenario is made from.
#pragma once

#include <string>
#include <vector>

#include "scenarios/reader/scenario.hpp"

namespace shardsim {

/// Files that scalars of `tree` name, as the readers find them: configurations of models, profiles, stacks. `folder` is what relative paths
/// start from.
[[nodiscard]] std::vector<std::string> named_files(const ConfigNode& tree, const std::string& folder);
/// The scenario's own file and those that it names.
[[nodiscard]] std::vector<std::string> input_files(const Scenario& scenario);

}  // namespace shardsim
