// SPDX-License-Identifier: Apache-2.0
// Time of a matrix product from its shape.
#pragma once

#include <vector>

#include "sim/machine/profile.hpp"
#include "sim/schedule/work.hpp"

namespace shardsim {

/// Peak for products of `dtype`; where the profile has none, that of the other 16-bit format, else of fp32, else the lowest given.
[[nodiscard]] FlopRate peak_for(const Gpu& gpu, DType dtype);

/// Bytes of both inputs and the output, each touched once.
[[nodiscard]] Bytes touched_bytes(const MatrixProduct& product, DType dtype);

/// T = t0 + (Tc^p + Tm^p)^(1/p): a roofline with a soft corner, because products near it overlap arithmetic and memory only in part.
/// Tc = FLOPs / (efficiency peak), stretched by the idle share of the last wave of tiles where a tile is given; Tm = bytes / (eta HBM).
[[nodiscard]] Seconds roofline(const Gpu& gpu, const MatrixProduct& product, DType dtype);

/// The roofline times a residual: the ratio of measured to predicted time, averaged over the nearest measured shapes with weights
/// 1 / distance^2 in log (m, n, k). A shape that was measured comes out as measured; far from all, the residual fades to 1.
class GemmPredictor {
 public:
  explicit GemmPredictor(const Gpu& gpu);
  [[nodiscard]] Seconds time(const MatrixProduct& product, DType dtype) const;

 private:
  [[nodiscard]] double residual(const MatrixProduct& product) const;

  struct Residual {
    double m, n, k, log_ratio;
  };
  Gpu gpu_;
  std::vector<Residual> residuals_;
};

}  // namespace shardsim
