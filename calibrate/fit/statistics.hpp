// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace shardsim {

/// The value below which `share` of the values lie, linearly between ranks; 0 for none.
[[nodiscard]] inline double percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double rank = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(rank);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (rank - static_cast<double>(below));
}

[[nodiscard]] inline double median(std::vector<double> values) { return percentile(std::move(values), 0.5); }

}  // namespace shardsim
