// SPDX-License-Identifier: Apache-2.0
// The same job under several strategies.
#pragma once

#include "shardsim/scenario.hpp"
#include "studies/compare/comparison.hpp"

namespace shardsim {

/// Fastest first. `strategies`: names of the catalogue.
[[nodiscard]] inline Expected<Comparison> compare(const Scenario& scenario, const std::vector<std::string>& strategies) {
  return expected_from([&] { return compare_strategies(scenario, strategies); });
}

}  // namespace shardsim
