// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/attention.hpp"

#include <algorithm>
#include <cmath>

namespace shardsim {
namespace {

constexpr double queries_of_block = 128;  // of FlashAttention-2 and -3 for heads of 64 and 128

double log_of(std::int64_t value) { return std::log(static_cast<double>(value)); }

/// Between (x0, y0) and (x1, y1), clamped.
double between(double x, double x0, double y0, double x1, double y1) {
  if (x1 <= x0) return y0;
  return y0 + (y1 - y0) * std::clamp((x - x0) / (x1 - x0), 0.0, 1.0);
}

/// The two neighbours of x in a sorted list, the same one twice at its ends.
template <class Row, class Key>
std::pair<const Row*, const Row*> around(const std::vector<Row>& rows, double x, Key key) {
  const auto above = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.*key >= x; });
  if (above == rows.begin()) return {&rows.front(), &rows.front()};
  if (above == rows.end()) return {&rows.back(), &rows.back()};
  return {&*(above - 1), &*above};
}

}  // namespace

AttentionPredictor::AttentionPredictor(const Gpu& gpu)
    : launch_(gpu.attention.table.empty() ? gpu.gemm.launch : gpu.attention.launch),
      half_waves_(gpu.attention.half_waves),
      backward_(gpu.attention_backward_efficiency / std::max(gpu.attention_efficiency, 1e-9)),
      flat_(gpu.attention_efficiency),
      multiprocessors_(gpu.multiprocessors) {
  for (const AttentionModel::Point& p : gpu.attention.table) {
    const double head = log_of(p.head_dim);
    auto curve = std::find_if(curves_.begin(), curves_.end(), [&](const Curve& c) { return c.head_dim == head; });
    if (curve == curves_.end()) curve = curves_.insert(curves_.end(), {head, {}});
    curve->points.push_back({log_of(p.sequence), std::log(p.share)});
  }
  std::sort(curves_.begin(), curves_.end(), [](const Curve& a, const Curve& b) { return a.head_dim < b.head_dim; });
  for (Curve& c : curves_)
    std::sort(c.points.begin(), c.points.end(), [](const Point& a, const Point& b) { return a.sequence < b.sequence; });
}

double AttentionPredictor::along(const Curve& curve, double sequence) {
  const auto [low, high] = around(curve.points, sequence, &Point::sequence);
  return between(sequence, low->sequence, low->share, high->sequence, high->share);
}

double AttentionPredictor::share(std::int64_t head_dim, std::int64_t sequence) const {
  if (curves_.empty()) return flat_;
  const double head = log_of(std::max<std::int64_t>(head_dim, 1)), s = log_of(std::max<std::int64_t>(sequence, 1));
  const auto [low, high] = around(curves_, head, &Curve::head_dim);
  return std::exp(between(head, low->head_dim, along(*low, s), high->head_dim, along(*high, s)));
}

Seconds AttentionPredictor::time(const FlashAttention& a, FlopRate peak) const {
  double fill = 1;
  if (half_waves_ > 0 && a.sequence > 0 && a.head_dim > 0) {
    // Forward does 4 FLOPs for each query, key and element of a head; backward is counted as twice that.
    const double rows = a.flops.base() / ((a.backward ? 8.0 : 4.0) * static_cast<double>(a.sequence) * static_cast<double>(a.head_dim));
    const double waves = rows / (queries_of_block * multiprocessors_);
    fill = waves / (waves + half_waves_);
  }
  const double rate = share(a.head_dim, a.sequence) * fill * (a.backward ? backward_ : 1);
  return launch_ + a.flops * a.density / (peak * rate);
}

}  // namespace shardsim
