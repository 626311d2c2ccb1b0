// SPDX-License-Identifier: Apache-2.0
// Tables of published matrix products: CSV with the columns m, n, k, time_us.
#pragma once

#include <string>

#include "calibrate/fit/gemm_fit.hpp"
#include "sim/base/problem.hpp"

namespace shardsim {

/// Products of at least `rows` rows (m): training works on thousands of tokens, and the kernels of inference would bend the fit.
/// Rows that are no products (m = 0) are left out; a table without any is a problem, and so is a cell that is no number.
[[nodiscard]] Result<GemmPoints> read_products(const Source& source, std::int64_t rows);

/// `base` with launch and efficiencies fitted to the points, and up to `keep` of them as its residual table.
[[nodiscard]] Profile with_products(Profile base, const GemmPoints& points, std::size_t keep, const std::string& source);

}  // namespace shardsim
