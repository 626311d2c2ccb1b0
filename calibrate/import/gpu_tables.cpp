// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/gpu_tables.hpp"

#include <fmt/format.h>

#include <array>
#include <memory>

#include "calibrate/fit/statistics.hpp"
#include "calibrate/import/nccl_tests_line.hpp"
#include "sim/costs/gemm_predictor.hpp"

namespace shardsim {
namespace {

std::array<std::string_view, 4> cells_of(std::string_view line) {
  std::array<std::string_view, 4> cells;
  for (auto& cell : cells) {
    const std::size_t comma = std::min(line.find(','), line.size());
    cell = line.substr(0, comma);
    line.remove_prefix(std::min(comma + 1, line.size()));
    while (!cell.empty() && (cell.back() == '\r' || cell.back() == ' ')) cell.remove_suffix(1);
  }
  return cells;
}

}  // namespace

Result<GemmPoints> read_products(const Source& source, std::int64_t rows) {
  const auto shared = std::make_shared<const Source>(source);
  Problems problems;
  GemmPoints points;
  std::string_view rest = source.text;
  for (int line = 1; !rest.empty(); ++line) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const auto cells = cells_of(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line == 1) {
      if (cells != std::array<std::string_view, 4>{"m", "n", "k", "time_us"})
        problems.add({shared, 1, 1}, "the header must be m,n,k,time_us");
      continue;
    }
    if (cells[0].empty()) continue;
    const auto m = nccl_tests::integer(cells[0]), n = nccl_tests::integer(cells[1]), k = nccl_tests::integer(cells[2]);
    const auto time = nccl_tests::number(cells[3]);
    if (!m || !n || !k || !time)
      problems.add({shared, line, 1}, "expected three integers and a time in microseconds");
    else if (*m >= std::max<std::int64_t>(rows, 1) && *n > 0 && *k > 0 && *time > 0)
      points.push_back({*m, *n, *k, microseconds(*time)});
  }
  if (problems.empty() && points.size() < 3)
    problems.add({shared, 0, 0}, fmt::format("fewer than three products with m of at least {}", rows));
  if (!problems.empty()) return tl::unexpected(problems);
  return points;
}

Profile with_products(Profile base, const GemmPoints& points, std::size_t keep, const std::string& source) {
  base.gpu.gemm = fit_gemm(base.gpu, points);
  std::vector<double> errors;
  for (const auto& p : points) errors.push_back(std::abs(roofline(base.gpu, {p.m, p.n, p.k, 1}, DType::bf16) / p.time - 1));
  base.origins["gpu.gemm"] = fmt::format("fitted: {} products of {}, median error {:.1f} %, p90 {:.1f} %", points.size(), source,
                                         100 * median(errors), 100 * percentile(errors, 0.9));
  if (keep > 0) base.gpu.gemm.table = spread_out(points, keep);
  return base;
}

}  // namespace shardsim
