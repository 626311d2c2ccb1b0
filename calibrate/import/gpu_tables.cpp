// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/gpu_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "calibrate/fit/statistics.hpp"
#include "sim/costs/attention.hpp"
#include "sim/costs/products.hpp"

namespace shardsim {
namespace {

constexpr double largest_size = 1e12;

std::int64_t whole(double value) { return static_cast<std::int64_t>(std::clamp(value, 0.0, largest_size)); }

std::string errors_text(const std::vector<double>& errors) {
  return fmt::format("median error {:.1f} %, p90 {:.1f} %", 100 * median(errors), 100 * percentile(errors, 0.9));
}

}  // namespace

Result<GemmPoints> read_products(const Source& source, std::int64_t rows, const std::vector<RowFilter>& filters) {
  const auto numbers = read_numbers(source, {"m", "n", "k", "time_us"}, filters);
  if (!numbers) return tl::unexpected(numbers.error());
  GemmPoints points;
  for (const auto& row : *numbers)
    if (row[0] >= static_cast<double>(std::max<std::int64_t>(rows, 1)) && row[1] > 0 && row[2] > 0 && row[3] > 0)
      points.push_back({whole(row[0]), whole(row[1]), whole(row[2]), microseconds(row[3])});
  if (points.size() >= 3) return points;
  Problems problems;
  problems.add({std::make_shared<const Source>(source), 0, 0}, fmt::format("fewer than three products with m of at least {}", rows));
  return tl::unexpected(std::move(problems));
}

Profile with_products(Profile base, const GemmPoints& points, std::size_t keep, const std::string& source, DType dtype) {
  GemmModel fitted = fit_gemm(base.gpu, points, dtype);
  std::vector<double> errors;
  for (const auto& p : points) errors.push_back(std::abs(roofline(base.gpu, fitted, {p.m, p.n, p.k, 1}, dtype) / p.time - 1));
  std::string origin = fmt::format("fitted: {} products of {}, {}", points.size(), source, errors_text(errors));
  if (keep > 0) {
    fitted.table = spread_out(points, keep);
    Gpu gpu = base.gpu;
    (dtype == DType::fp8 ? gpu.gemm_fp8.emplace() : gpu.gemm) = fitted;
    (dtype == DType::fp8 ? *gpu.gemm_fp8 : gpu.gemm).power_limit = 1;
    const GemmPredictor predictor(gpu);
    errors.clear();
    for (const auto& p : points) errors.push_back(std::abs(predictor.time({p.m, p.n, p.k, 1}, dtype) / p.time - 1));
    origin += fmt::format("; with the residuals of {} shapes {}", fitted.table.size(), errors_text(errors));
  }
  base.origins[dtype == DType::fp8 ? "gpu.gemm_fp8" : "gpu.gemm"] = origin;
  if (dtype == DType::fp8)
    base.gpu.gemm_fp8 = std::move(fitted);
  else
    base.gpu.gemm = std::move(fitted);
  return base;
}

Result<AttentionPoints> read_attention(const Source& source, const std::vector<RowFilter>& filters) {
  const auto numbers = read_numbers(source, {"batch", "sequence", "heads", "head_dim", "time_us"}, filters);
  if (!numbers) return tl::unexpected(numbers.error());
  AttentionPoints points;
  for (const auto& row : *numbers)
    if (*std::min_element(row.begin(), row.end()) > 0)
      points.push_back({whole(row[0]), whole(row[1]), whole(row[2]), whole(row[3]), microseconds(row[4])});
  if (!points.empty()) return points;
  Problems problems;
  problems.add({std::make_shared<const Source>(source), 0, 0}, "no row of attention that the filters let through");
  return tl::unexpected(std::move(problems));
}

Profile with_attention(Profile base, const std::vector<AttentionPoints>& lists, const std::string& source) {
  AttentionModel& model = base.gpu.attention;
  model = fit_attention(base.gpu, lists.front());
  std::vector<double> errors = attention_errors(base.gpu, lists.front());
  const std::size_t points = lists.front().size();
  std::string origin = fmt::format("fitted: forward of {} causal shapes of {}, {}", points, source, errors_text(errors));
  for (std::size_t i = 1; i < lists.size(); ++i) {
    const AttentionModel other = fit_attention(base.gpu, lists[i]);
    const auto added = add_head_sizes(model, other);
    if (!added.heads.empty())
      origin += fmt::format("; head sizes {} as list {} has them, times {:.2f}", fmt::join(added.heads, ", "), i + 1, added.ratio);
  }
  base.origins["gpu.attention"] = origin;
  return base;
}

}  // namespace shardsim
