// SPDX-License-Identifier: Apache-2.0
// Time of a matrix product from its shape.
#pragma once

#include <optional>
#include <vector>

#include "sim/machine/profile.hpp"
#include "sim/schedule/work.hpp"

namespace shardsim {

/// Peak for products of `dtype`; where the profile has none, that of the other 16-bit format, else of fp32, else the lowest given.
[[nodiscard]] FlopRate peak_for(const Gpu& gpu, DType dtype);

/// Bytes of both inputs and the output, each touched once. fp8 products write 16 bits.
[[nodiscard]] Bytes touched_bytes(const MatrixProduct& product, DType dtype);

/// T = t0 + (Tc^p + Tm^p)^(1/p): a roofline with a soft corner, because products near it overlap arithmetic and memory only in part.
/// Tc = FLOPs / (efficiency peak), stretched by the idle share of the last wave of tiles where a tile is given; Tm = bytes / (eta HBM).
[[nodiscard]] Seconds roofline(const Gpu& gpu, const GemmModel& gemm, const MatrixProduct& product, DType dtype);

/// How far two shapes are from each other as residuals go: what the waves of tiles depend on (m n) counts most, k less, the ratio of m to n
/// least. SOURCE: chosen on public tables of A100, H100 and H200 (shapes of training, 30 % held out): median 1.4 to 3.6 %, before, with
/// one e-fold of m, n and k alike, 2.2 to 3.7 %.
struct ShapeOfProduct {
  double area = 0, ratio = 0, depth = 0;
  ShapeOfProduct() = default;
  explicit ShapeOfProduct(const MatrixProduct& product);
  [[nodiscard]] double squared_distance(const ShapeOfProduct& other) const;
};

/// The roofline times a residual: the ratio of measured to predicted time, averaged over the nearest measured shapes with weights
/// 1 / distance^2. A shape that was measured comes out as measured; far from all, the residual fades to 1. Over it all, the rate that the
/// power limit leaves in a step.
class GemmPredictor {
 public:
  explicit GemmPredictor(const Gpu& gpu);
  [[nodiscard]] Seconds time(const MatrixProduct& product, DType dtype) const;

 private:
  struct Residual {
    ShapeOfProduct shape;
    double log_ratio;
  };
  /// What was measured of one format, by area.
  struct Format {
    GemmModel model;
    std::vector<Residual> residuals;
    Format(const Gpu& gpu, const GemmModel& gemm, DType dtype);
    [[nodiscard]] double residual(const MatrixProduct& product) const;
  };

  Gpu gpu_;
  Format wide_;                   // 16 bits
  std::optional<Format> narrow_;  // fp8
};

}  // namespace shardsim
