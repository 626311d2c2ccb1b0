// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/collective_curve.hpp"

#include <algorithm>
#include <cmath>

namespace shardsim {

std::vector<double> non_decreasing(const std::vector<double>& values) {
  struct Pool {
    double sum;
    std::size_t count;
  };
  std::vector<Pool> pools;
  for (const double value : values) {
    pools.push_back({value, 1});
    while (pools.size() > 1) {
      const Pool last = pools.back();
      Pool& before = pools[pools.size() - 2];
      if (before.sum * static_cast<double>(last.count) <= last.sum * static_cast<double>(before.count)) break;
      before = {before.sum + last.sum, before.count + last.count};
      pools.pop_back();
    }
  }
  std::vector<double> result;
  result.reserve(values.size());
  for (const Pool& pool : pools) result.insert(result.end(), pool.count, pool.sum / static_cast<double>(pool.count));
  return result;
}

Seconds time_of(const std::vector<CollectiveSegment>& segments, Bytes size) {
  Seconds least;
  for (const CollectiveSegment& segment : segments) {
    if (!segment.limit || size <= *segment.limit) return std::max(least, segment.alpha + size / segment.algbw);
    least = std::max(least, segment.alpha + *segment.limit / segment.algbw);
  }
  return least;
}

CollectiveCurve::CollectiveCurve(const CollectiveFit& fit) : segments_(fit.segments) {
  std::vector<double> logs;
  for (const auto& sample : fit.samples) logs.push_back(std::log(sample.median.base()));
  const std::vector<double> smooth = non_decreasing(logs);
  for (std::size_t i = 0; i < smooth.size(); ++i) points_.push_back({fit.samples[i].size, Seconds{std::exp(smooth[i])}});
}

bool CollectiveCurve::extrapolates(Bytes size) const { return !points_.empty() && size > points_.back().size; }

Seconds CollectiveCurve::beyond(Bytes size) const {
  const Point& last = points_.back();
  if (!segments_.empty()) return last.time + (size - last.size) / segments_.back().algbw;
  return last.time * (static_cast<double>(size.value()) / static_cast<double>(last.size.value()));
}

Seconds CollectiveCurve::at(Bytes size) const {
  if (points_.empty()) return time_of(segments_, size);
  if (size <= points_.front().size)
    return segments_.empty() ? points_.front().time : std::min(points_.front().time, time_of(segments_, size));
  if (size > points_.back().size) return beyond(size);
  const auto right = std::ranges::lower_bound(points_, size, {}, &Point::size);
  const auto left = std::prev(right);
  const double share = static_cast<double>((size - left->size).value()) / static_cast<double>((right->size - left->size).value());
  return left->time + (right->time - left->time) * share;
}

}  // namespace shardsim
