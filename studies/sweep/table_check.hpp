// SPDX-License-Identifier: Apache-2.0
// Mistakes of a sweep that would make every row an error, found before the first is simulated; and a count of the errors afterwards.
#pragma once

#include <cstdint>
#include <string>

#include "studies/sweep/sweep_plan.hpp"

namespace shardsim {

/// Keys that no scenario has, and options that no strategy has, where they stand in the sweep or its base. What is wrong with one value
/// is that row's error.
[[nodiscard]] Problems unknown_keys(const SweepPlan& plan);

struct FailedRows {
  std::uint64_t count = 0;
  std::string first;  ///< the line of the first of them in the table
};

/// Rows of a finished table that hold an error in place of figures.
[[nodiscard]] FailedRows failed_rows(const std::string& table, const SweepPlan& plan);

}  // namespace shardsim
