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

namespace {

std::vector<CollectiveCurve::Point> smooth(std::vector<CollectiveCurve::Point> points) {
  std::vector<double> logs;
  for (const auto& point : points) logs.push_back(std::log(point.time.base()));
  const std::vector<double> smoothed = non_decreasing(logs);
  for (std::size_t i = 0; i < points.size(); ++i) points[i].time = Seconds{std::exp(smoothed[i])};
  return points;
}

std::vector<CollectiveCurve::Point> points_of(const CollectiveFit& fit) {
  std::vector<CollectiveCurve::Point> points;
  for (const auto& sample : fit.samples) points.push_back({sample.size, sample.median});
  return points;
}

}  // namespace

CollectiveCurve::CollectiveCurve(const CollectiveFit& fit, Seconds closed_slope)
    : points_(smooth(points_of(fit))), segments_(fit.segments) {
  if (!points_.empty())
    last_ = points_.back();
  else if (fit.largest > Bytes{})
    last_ = {fit.largest, time_of(segments_, fit.largest)};
  find_slope(closed_slope);
}

CollectiveCurve::CollectiveCurve(std::vector<Point> points) : points_(smooth(std::move(points))) {
  if (!points_.empty()) last_ = points_.back();
  find_slope({});
}

/// The rate of the last doubling still rises towards the closed form's, which is the next; unless they tell of different networks.
void CollectiveCurve::find_slope(Seconds closed_slope) {
  if (last_.size <= Bytes{}) return;
  const Bytes half{last_.size.value() / 2};
  const Seconds mean = last_.time / static_cast<double>(last_.size.value());
  const bool known = points_.empty() || points_.front().size <= half;
  const Seconds last = known ? (last_.time - measured(half)) / static_cast<double>((last_.size - half).value()) : mean;
  slope_ = std::clamp(last, 0.5 * mean, mean);  // noise must not make the rest free
  constexpr double same_network = 2;
  if (closed_slope > Seconds{} && closed_slope < slope_ && slope_ < same_network * closed_slope) slope_ = closed_slope;
}

Seconds CollectiveCurve::at(Bytes size) const {
  return extrapolates(size) ? last_.time + slope_ * static_cast<double>((size - last_.size).value()) : measured(size);
}

Seconds CollectiveCurve::measured(Bytes size) const {
  if (points_.empty()) return time_of(segments_, size);
  if (size <= points_.front().size) {
    const Point& first = points_.front();
    return segments_.empty() ? first.time : first.time * std::min(1.0, time_of(segments_, size) / time_of(segments_, first.size));
  }
  const auto right = std::ranges::lower_bound(points_, size, {}, &Point::size);
  if (right == points_.end()) return points_.back().time;
  const auto left = std::prev(right);
  const double share = static_cast<double>((size - left->size).value()) / static_cast<double>((right->size - left->size).value());
  return left->time + (right->time - left->time) * share;
}

}  // namespace shardsim
