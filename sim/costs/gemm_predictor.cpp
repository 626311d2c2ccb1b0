// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/gemm_predictor.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace shardsim {
namespace {

constexpr double corner = 2.0;  // p of the soft maximum: best of 1.5 to 5 on public tables of A100, H100 and H200
constexpr std::size_t neighbours = 6;
constexpr double fade = 1.0;  // distance (in e-folds of a dimension) at which the prior "no residual" weighs as much as one point

double as_double(std::int64_t value) { return static_cast<double>(value); }

/// Share of the tiles' slots that the waves fill: 1 when the tiles are a multiple of the multiprocessors.
double wave_fill(const Gpu& gpu, const MatrixProduct& p) {
  if (gpu.gemm.tile_m <= 0 || gpu.gemm.tile_n <= 0) return 1;
  const std::int64_t tiles = ceil_div(p.m, gpu.gemm.tile_m) * ceil_div(p.n, gpu.gemm.tile_n) * p.count;
  const std::int64_t waves = ceil_div(tiles, gpu.multiprocessors);
  const double covered = as_double(p.m) * as_double(p.n) * as_double(p.count) / (as_double(gpu.gemm.tile_m) * as_double(gpu.gemm.tile_n));
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

Bytes touched_bytes(const MatrixProduct& p, DType dtype) { return Bytes{(p.m * p.k + p.k * p.n + p.m * p.n) * p.count * size_of(dtype)}; }

Seconds roofline(const Gpu& gpu, const MatrixProduct& product, DType dtype) {
  const Seconds compute = product.flops() / (peak_for(gpu, dtype) * (gpu.gemm.efficiency * wave_fill(gpu, product)));
  const Seconds memory = touched_bytes(product, dtype) / (gpu.memory_bandwidth * gpu.gemm.memory_efficiency);
  const double longer = std::max(compute, memory).base();
  if (longer <= 0) return gpu.gemm.launch;
  const double ratio = std::min(compute, memory).base() / longer;
  return gpu.gemm.launch + Seconds{longer * std::pow(1 + std::pow(ratio, corner), 1 / corner)};
}

GemmPredictor::GemmPredictor(const Gpu& gpu) : gpu_(gpu) {
  for (const GemmModel::Point& p : gpu.gemm.table) {
    const Seconds predicted = roofline(gpu, {p.m, p.n, p.k, 1}, DType::bf16);
    residuals_.push_back({std::log(as_double(p.m)), std::log(as_double(p.n)), std::log(as_double(p.k)), std::log(p.time / predicted)});
  }
}

double GemmPredictor::residual(const MatrixProduct& product) const {
  const double m = std::log(as_double(product.m)), n = std::log(as_double(product.n)), k = std::log(as_double(product.k));
  struct Near {
    double distance, log_ratio;
  };
  std::array<Near, neighbours> nearest;
  nearest.fill({1e30, 0});
  for (const Residual& r : residuals_) {
    const double d = (m - r.m) * (m - r.m) + (n - r.n) * (n - r.n) + (k - r.k) * (k - r.k);
    if (d >= nearest.back().distance) continue;
    auto slot = std::ranges::find_if(nearest, [&](const Near& other) { return d < other.distance; });
    std::move_backward(slot, nearest.end() - 1, nearest.end());
    *slot = {d, r.log_ratio};
  }
  double weights = 1 / (fade * fade), sum = 0;
  for (const Near& near : nearest) {
    if (near.distance < 1e-18) return near.log_ratio;
    weights += 1 / near.distance;
    sum += near.log_ratio / near.distance;
  }
  return sum / weights;
}

Seconds GemmPredictor::time(const MatrixProduct& product, DType dtype) const {
  const Seconds base = roofline(gpu_, product, dtype);
  // The table holds 16-bit products; other formats run other kernels.
  if (residuals_.empty() || size_of(dtype) != 2) return base;
  return base * std::exp(residual(product));
}

}  // namespace shardsim
