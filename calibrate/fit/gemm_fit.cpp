// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/gemm_fit.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/costs/products.hpp"

namespace shardsim {
namespace {

constexpr double gemm_huber_limit = 0.1;
constexpr std::size_t most_gemm_points = 400;  // the fit has three parameters: more points cost time and change nothing

using Parameters = Eigen::Vector3d;  // logs of launch, efficiency, memory efficiency

void apply(GemmModel& gemm, const Parameters& p) {
  // Noise of a busy machine can ask for a launch of nothing: no call takes less than tens of cycles.
  gemm.launch = Seconds{std::clamp(std::exp(p[0]), 1e-8, 1e-2)};
  gemm.efficiency = std::min(1.0, std::exp(p[1]));
  gemm.memory_efficiency = std::min(1.5, std::exp(p[2]));  // caches may beat DRAM
}

class Problem3 {
 public:
  Problem3(const Gpu& gpu, GemmModel gemm, const GemmPoints& points, DType dtype)
      : gpu_(gpu), gemm_(std::move(gemm)), points_(points), dtype_(dtype) {}

  Eigen::VectorXd residuals(const Parameters& p) {
    apply(gemm_, p);
    Eigen::VectorXd r(static_cast<Eigen::Index>(points_.size()));
    for (Eigen::Index i = 0; i < r.size(); ++i) {
      const auto& point = points_[static_cast<std::size_t>(i)];
      r[i] = std::log(roofline(gpu_, gemm_, {point.m, point.n, point.k, 1}, dtype_) / point.time);
    }
    return r;
  }

  static double cost(const Eigen::VectorXd& r) {
    double sum = 0;
    for (const double x : r) sum += std::abs(x) <= gemm_huber_limit ? x * x : gemm_huber_limit * (2 * std::abs(x) - gemm_huber_limit);
    return sum;
  }

  /// Levenberg-Marquardt with numerical slopes; `p` ends at the minimum.
  double minimise(Parameters& p) {
    Eigen::VectorXd r = residuals(p);
    double best = cost(r), damping = 1e-2;
    for (int iteration = 0; iteration < 40 && damping < 1e6; ++iteration) {
      Eigen::MatrixXd slopes(r.size(), 3);
      for (int j = 0; j < 3; ++j) {
        Parameters shifted = p;
        shifted[j] += 1e-4;
        slopes.col(j) = (residuals(shifted) - r) / 1e-4;
      }
      const Eigen::VectorXd weights = r.unaryExpr([](double x) { return std::min(1.0, gemm_huber_limit / std::max(std::abs(x), 1e-12)); });
      Eigen::Matrix3d hessian = slopes.transpose() * weights.asDiagonal() * slopes;
      const Parameters gradient = slopes.transpose() * weights.asDiagonal() * r;
      hessian.diagonal() *= 1 + damping;
      hessian.diagonal().array() += 1e-9;
      const Parameters next = p - hessian.ldlt().solve(gradient);
      const Eigen::VectorXd next_r = residuals(next);
      const double next_cost = cost(next_r);
      if (!(next_cost < best)) {
        damping *= 5;
        continue;
      }
      const bool settled = best - next_cost < 1e-9 * best;
      p = next;
      r = next_r;
      best = next_cost;
      damping /= 5;
      if (settled) break;
    }
    return best;
  }

 private:
  const Gpu& gpu_;
  GemmModel gemm_;
  const GemmPoints& points_;
  DType dtype_;
};

}  // namespace

GemmModel fit_gemm(const Gpu& gpu, const GemmPoints& points, DType dtype) {
  const GemmPoints used = spread_out(points, most_gemm_points);
  GemmModel best = dtype == DType::fp8 && gpu.gemm_fp8 ? *gpu.gemm_fp8 : gpu.gemm;
  best.table.clear();
  double best_cost = std::numeric_limits<double>::max();
  static constexpr std::array<std::pair<int, int>, 4> tiles{{{0, 0}, {128, 128}, {128, 256}, {256, 128}}};
  for (const auto& [m, n] : tiles) {
    GemmModel candidate = best;
    candidate.tile_m = m;
    candidate.tile_n = n;
    Parameters p(std::log(3e-6), std::log(0.75), std::log(0.75));
    const double cost = Problem3(gpu, candidate, used, dtype).minimise(p);
    if (cost >= best_cost) continue;
    best_cost = cost;
    apply(candidate, p);
    best = candidate;
  }
  return best;
}

GemmPoints spread_out(const GemmPoints& points, std::size_t count) {
  if (points.size() <= count) return points;
  std::vector<double> distance(points.size(), std::numeric_limits<double>::max());
  std::vector<ShapeOfProduct> shapes;
  shapes.reserve(points.size());
  for (const auto& p : points) shapes.emplace_back(MatrixProduct{p.m, p.n, p.k, 1});
  GemmPoints taken;
  std::size_t next = 0;
  while (taken.size() < count) {
    taken.push_back(points[next]);
    const ShapeOfProduct from = shapes[next];
    std::size_t farthest = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      distance[i] = std::min(distance[i], shapes[i].squared_distance(from));
      if (distance[i] > distance[farthest]) farthest = i;
    }
    next = farthest;
  }
  return taken;
}

}  // namespace shardsim
