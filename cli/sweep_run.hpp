// SPDX-License-Identifier: Apache-2.0
// From a row of a sweep to its line in the output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/sweep_plan.hpp"

namespace shardsim {

enum class RowFormat : std::uint8_t { csv, json_lines };

/// Every single figure of `simulate`: dotted paths, in its order.
[[nodiscard]] std::vector<std::string> simulate_columns();

/// The first line of a CSV: index, the keys that vary, error, the columns. Empty for JSON lines.
[[nodiscard]] std::string sweep_header(const SweepPlan& plan, RowFormat format);

/// Simulates row `index`. A scenario that cannot run gives a row with its error and no figures: one bad corner of a grid does not end a
/// sweep.
[[nodiscard]] std::string sweep_row(const SweepPlan& plan, std::uint64_t index, RowFormat format);

}  // namespace shardsim
