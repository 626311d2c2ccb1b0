// SPDX-License-Identifier: Apache-2.0
// Tables of published kernels: matrix products (columns m, n, k, time_us) and attention (batch, sequence, heads, head_dim, time_us).
#pragma once

#include <string>

#include "calibrate/fit/attention_fit.hpp"
#include "calibrate/fit/gemm_fit.hpp"
#include "calibrate/import/number_table.hpp"
#include "sim/base/problem.hpp"

namespace shardsim {

/// Products of at least `rows` rows (m): training works on thousands of tokens, and the kernels of inference would bend the fit.
/// Rows that are no products (m = 0) are left out; a table without any is a problem, and so is a cell that is no number.
[[nodiscard]] Result<GemmPoints> read_products(const Source& source, std::int64_t rows, const std::vector<RowFilter>& filters = {});

/// `base` with launch and efficiencies fitted to the points, and up to `keep` of them as its residual table. fp8 has a model of its own.
[[nodiscard]] Profile with_products(Profile base, const GemmPoints& points, std::size_t keep, const std::string& source,
                                    DType dtype = DType::bf16);

[[nodiscard]] Result<AttentionPoints> read_attention(const Source& source, const std::vector<RowFilter>& filters);

/// `base` with its attention fitted to the points: to the first list, and for head sizes that only later ones have, to these, at the ratio
/// of the first list's shares to theirs at the head sizes that both have.
[[nodiscard]] Profile with_attention(Profile base, const std::vector<AttentionPoints>& lists, const std::string& source);

}  // namespace shardsim
