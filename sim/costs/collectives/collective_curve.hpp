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

/// Inside the measured sizes: linear in bytes between neighbouring points, made non-decreasing in log time first. Outside, or where
/// nothing but segments is known: the segments, joined to the last point by their slope.
class CollectiveCurve {
 public:
  explicit CollectiveCurve(const CollectiveFit& fit);

  [[nodiscard]] Seconds at(Bytes size) const;
  /// Above the largest measured size.
  [[nodiscard]] bool extrapolates(Bytes size) const;

 private:
  [[nodiscard]] Seconds beyond(Bytes size) const;

  struct Point {
    Bytes size;
    Seconds time;
  };
  std::vector<Point> points_;
  std::vector<CollectiveSegment> segments_;
};

}  // namespace shardsim
