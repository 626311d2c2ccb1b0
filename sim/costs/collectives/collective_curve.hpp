// SPDX-License-Identifier: Apache-2.0
// Time of a measured collective as a function of its size.
#pragma once

#include <vector>

#include "sim/machine/profile.hpp"

namespace shardsim {

/// The least-squares non-decreasing sequence (pool adjacent violators). Measured curves dip where NCCL changes protocol; time must not.
[[nodiscard]] std::vector<double> non_decreasing(const std::vector<double>& values);

/// T(S) of the fitted segments, never below what a smaller size takes.
[[nodiscard]] Seconds time_of(const std::vector<CollectiveSegment>& segments, Bytes size);

/// Inside the measured sizes: linear in bytes between neighbouring points, made non-decreasing in log time first; the segments where
/// nothing else is known. Below the smallest size: the segments. Above the largest: on at the rate of the closed form's ring (16 GiB on 8
/// H200: all-gather 361 GB/s, where the last doubling before 512 MiB has 351 and the ring 367), or of the last doubling where that is
/// another network's.
class CollectiveCurve {
 public:
  struct Point {
    Bytes size;
    Seconds time;
  };

  /// `closed_slope`: time of a byte more of a large payload by the closed form; zero: not known.
  explicit CollectiveCurve(const CollectiveFit& fit, Seconds closed_slope = {});
  /// By rising sizes.
  explicit CollectiveCurve(std::vector<Point> points);

  [[nodiscard]] Seconds at(Bytes size) const;
  /// Above the largest measured size.
  [[nodiscard]] bool extrapolates(Bytes size) const { return last_.size > Bytes{} && size > last_.size; }

 private:
  void find_slope(Seconds closed_slope);
  [[nodiscard]] Seconds measured(Bytes size) const;

  std::vector<Point> points_;
  std::vector<CollectiveSegment> segments_;
  Point last_;     // the largest size measured; zero where segments do not say it
  Seconds slope_;  // of a byte beyond it
};

}  // namespace shardsim
