// SPDX-License-Identifier: Apache-2.0
// Time of a flash-attention kernel from its head size and sequence length.
#pragma once

#include <vector>

#include "sim/machine/profile.hpp"
#include "sim/schedule/work.hpp"

namespace shardsim {

/// T = launch + FLOPs / (peak share(head size, sequence) fill). The share is interpolated between measured points in the logarithms of
/// both; beyond them it is that of the nearest. fill = w / (w + half_waves), w = blocks of 128 queries over multiprocessors: short jobs do
/// not fill the device. SOURCE of the form: public tables of nine GPUs, held out 4.5 % median and 17 % at the 90th percentile
/// (docs/profile.md).
class AttentionPredictor {
 public:
  explicit AttentionPredictor(const Gpu& gpu);
  [[nodiscard]] Seconds time(const FlashAttention& attention, FlopRate peak) const;
  /// Share of the peak that a device full of it reaches, forward.
  [[nodiscard]] double share(std::int64_t head_dim, std::int64_t sequence) const;

 private:
  struct Point {
    double sequence, share;  // logarithms
  };
  struct Curve {
    double head_dim;  // logarithm
    std::vector<Point> points;
  };
  [[nodiscard]] static double along(const Curve& curve, double sequence);

  Seconds launch_;
  double half_waves_, backward_, flat_;
  double multiprocessors_;
  std::vector<Curve> curves_;  // by head size
};

}  // namespace shardsim
