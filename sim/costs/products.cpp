// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/products.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace shardsim {
namespace {

constexpr double corner = 2.0;  // p of the soft maximum: best of 1.5 to 5 on public tables of A100, H100 and H200
constexpr std::size_t neighbours = 6;
constexpr double fade = 1.0;  // distance (in e-folds of a dimension) at which the prior "no residual" weighs as much as one point

// Weights of the distance between shapes (see ShapeOfProduct).
constexpr double area_weight = 2, ratio_weight = 0.2, depth_weight = 0.5;

double as_double(std::int64_t value) { return static_cast<double>(value); }

/// Share of the tiles' slots that the waves fill: 1 when the tiles are a multiple of the multiprocessors.
double wave_fill(const Gpu& gpu, const GemmModel& gemm, const MatrixProduct& p) {
  if (gemm.tile_m <= 0 || gemm.tile_n <= 0) return 1;
  const std::int64_t tiles = ceil_div(p.m, gemm.tile_m) * ceil_div(p.n, gemm.tile_n) * p.count;
  const std::int64_t waves = ceil_div(tiles, gpu.multiprocessors);
  const double covered = as_double(p.m) * as_double(p.n) * as_double(p.count) / (as_double(gemm.tile_m) * as_double(gemm.tile_n));
  return covered / as_double(waves * gpu.multiprocessors);
}

}  // namespace

FlopRate peak_for(const Gpu& gpu, DType dtype) {
  for (const DType type : {dtype, dtype == DType::bf16 ? DType::fp16 : DType::bf16, DType::fp32}) {
    if (size_of(type) < size_of(dtype)) continue;  // a wider product cannot run at a narrower format's rate
    if (const auto found = gpu.peak.find(type); found != gpu.peak.end()) return found->second;
  }
  FlopRate least{1e30};
  for (const auto& [type, rate] : gpu.peak) least = std::min(least, rate);
  return least;
}

Bytes touched_bytes(const MatrixProduct& p, DType dtype) {
  const std::int64_t in = size_of(dtype), out = std::max<std::int64_t>(in, 2);
  return Bytes{((p.m * p.k + p.k * p.n) * in + p.m * p.n * out) * p.count};
}

Seconds roofline(const Gpu& gpu, const GemmModel& gemm, const MatrixProduct& product, DType dtype) {
  const Seconds compute = product.flops() / (peak_for(gpu, dtype) * (gemm.efficiency * wave_fill(gpu, gemm, product)));
  const Seconds memory = touched_bytes(product, dtype) / (gpu.memory_bandwidth * gemm.memory_efficiency);
  const double longer = std::max(compute, memory).base();
  if (longer <= 0) return gemm.launch;
  const double ratio = std::min(compute, memory).base() / longer;
  return gemm.launch + Seconds{longer * std::pow(1 + std::pow(ratio, corner), 1 / corner)};
}

ShapeOfProduct::ShapeOfProduct(const MatrixProduct& p)
    : area(area_weight * std::log(as_double(p.m) * as_double(p.n) * as_double(p.count))),
      ratio(ratio_weight * std::log(as_double(p.m) / as_double(p.n))),
      depth(depth_weight * std::log(as_double(p.k))) {}

double ShapeOfProduct::squared_distance(const ShapeOfProduct& other) const {
  const double a = area - other.area, r = ratio - other.ratio, d = depth - other.depth;
  return a * a + r * r + d * d;
}

GemmPredictor::Format::Format(const Gpu& gpu, const GemmModel& gemm, DType dtype) : model(gemm) {
  for (const GemmModel::Point& p : gemm.table) {
    const MatrixProduct product{p.m, p.n, p.k, 1};
    residuals.push_back({ShapeOfProduct(product), std::log(p.time / roofline(gpu, gemm, product, dtype))});
  }
  std::sort(residuals.begin(), residuals.end(), [](const Residual& a, const Residual& b) { return a.shape.area < b.shape.area; });
  model.table.clear();
}

/// Goes outwards from where the area would stand, until the area alone is farther than the nearest that were found.
double GemmPredictor::Format::residual(const MatrixProduct& product) const {
  const ShapeOfProduct shape(product);
  struct Near {
    double distance, log_ratio;
  };
  std::array<Near, neighbours> nearest;
  nearest.fill({1e30, 0});
  const auto too_far = [&](const Residual& r) {
    const double a = r.shape.area - shape.area;
    return a * a >= nearest.back().distance;
  };
  const auto look_at = [&](const Residual& r) {
    const double d = shape.squared_distance(r.shape);
    if (d >= nearest.back().distance) return;
    auto slot = std::ranges::find_if(nearest, [&](const Near& other) { return d < other.distance; });
    std::move_backward(slot, nearest.end() - 1, nearest.end());
    *slot = {d, r.log_ratio};
  };
  const auto middle =
      std::lower_bound(residuals.begin(), residuals.end(), shape.area, [](const Residual& r, double area) { return r.shape.area < area; });
  for (auto r = middle; r != residuals.end() && !too_far(*r); ++r) look_at(*r);
  for (auto r = middle; r != residuals.begin() && !too_far(*(r - 1)); --r) look_at(*(r - 1));
  double weights = 1 / (fade * fade), sum = 0;
  for (const Near& near : nearest) {
    if (near.distance < 1e-18) return near.log_ratio;
    weights += 1 / near.distance;
    sum += near.log_ratio / near.distance;
  }
  return sum / weights;
}

GemmPredictor::GemmPredictor(const Gpu& gpu) : gpu_(gpu), wide_(gpu, gpu.gemm, DType::bf16) {
  if (gpu.gemm_fp8) narrow_.emplace(gpu, *gpu.gemm_fp8, DType::fp8);
  gpu_.gemm.table.clear();
  gpu_.gemm_fp8.reset();
}

Seconds GemmPredictor::time(const MatrixProduct& product, DType dtype) const {
  const bool narrow = dtype == DType::fp8 && narrow_;
  const Format& format = narrow ? *narrow_ : wide_;
  const Seconds base = roofline(gpu_, format.model, product, dtype) / format.model.power_limit;
  // A table holds products of its own width; other formats run other kernels.
  if (format.residuals.empty() || (!narrow && size_of(dtype) != 2)) return base;
  return base * std::exp(format.residual(product));
}

}  // namespace shardsim
