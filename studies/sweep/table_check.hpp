// SPDX-License-Identifier: Apache-2.0
// Mistakes of a sweep that would make every row an error, found before the first is simulated.
#pragma once

#include "studies/sweep/sweep_plan.hpp"

namespace shardsim {

/// Keys that no scenario has, and options that no strategy has, where they stand in the sweep or its base. What is wrong with one value
/// is that row's error.
[[nodiscard]] Problems unknown_keys(const SweepPlan& plan);

}  // namespace shardsim
