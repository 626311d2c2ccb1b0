// SPDX-License-Identifier: Apache-2.0
// A CSV table of measurements: columns by name, rows chosen by what they say of their GPU, format or software.
#pragma once

#include <string>
#include <vector>

#include "sim/base/problem.hpp"

namespace shardsim {

/// A column and what its cells must begin with: {"gpu", "h100"}.
struct RowFilter {
  std::string column, prefix;
};

/// The numbers of `columns` of every row that all filters let through, in order. A filter on a column that the table lacks lets everything
/// through; a missing column and a cell that is no number are problems.
[[nodiscard]] Result<std::vector<std::vector<double>>> read_numbers(const Source& source, const std::vector<std::string>& columns,
                                                                    const std::vector<RowFilter>& filters = {});

}  // namespace shardsim
