// SPDX-License-Identifier: Apache-2.0
// One simulated step on one screen of 80 columns.
#pragma once

#include <string>

#include "sim/engine/result.hpp"

namespace shardsim {

[[nodiscard]] std::string simulate_table(const SimulationResult& result);

}  // namespace shardsim
