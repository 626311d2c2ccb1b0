// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/segment_fit.hpp"

#include <Eigen/Dense>
#include <cmath>

#include "calibrate/fit/statistics.hpp"
#include "sim/costs/collectives/collective_curve.hpp"

namespace shardsim {
namespace {

constexpr double huber_limit = 0.15;  // log residuals beyond 15 % count linearly: protocol switches leave outliers
constexpr double noise_floor = 1e-4;  // (1 %)^2: repeats differ by that much, and no fit is better than its data
constexpr std::size_t points_per_segment = 3;
constexpr std::size_t most_points = 160;  // the dynamic programme is cubic in them

struct Point {
  double size, time;
};

struct Line {
  double alpha = 0, beta = 0;  // seconds, seconds per byte
  double cost = 0;             // sum of huber losses
};

double huber(double residual) {
  const double r = std::abs(residual);
  return r <= huber_limit ? r * r : huber_limit * (2 * r - huber_limit);
}

double cost_of(const Point* points, std::size_t count, const Eigen::Vector2d& logs) {
  double cost = 0;
  for (std::size_t i = 0; i < count; ++i)
    cost += huber(std::log(std::exp(logs[0]) + std::exp(logs[1]) * points[i].size) - std::log(points[i].time));
  return cost;
}

/// Least squares on relative errors: linear, so solved at once. The start of the iteration below, with both parameters kept positive.
Eigen::Vector2d start_of(const Point* points, std::size_t count) {
  Eigen::Matrix2d a = Eigen::Matrix2d::Zero();
  Eigen::Vector2d b = Eigen::Vector2d::Zero();
  for (std::size_t i = 0; i < count; ++i) {
    const Eigen::Vector2d row(1 / points[i].time, points[i].size / points[i].time);
    a += row * row.transpose();
    b += row;
  }
  const Eigen::Vector2d x = a.fullPivLu().solve(b);
  const double least_alpha = points[0].time * 1e-3, least_beta = points[count - 1].time / points[count - 1].size * 1e-3;
  return {std::log(std::max(x[0], least_alpha)), std::log(std::max(x[1], least_beta))};
}

/// Levenberg-Marquardt on (log alpha, log beta) with Huber weights.
Line fit_line(const Point* points, std::size_t count) {
  Eigen::Vector2d logs = start_of(points, count);
  double cost = cost_of(points, count, logs), damping = 1e-3;
  for (int iteration = 0; iteration < 60 && damping < 1e8; ++iteration) {
    Eigen::Matrix2d hessian = Eigen::Matrix2d::Zero();
    Eigen::Vector2d gradient = Eigen::Vector2d::Zero();
    for (std::size_t i = 0; i < count; ++i) {
      const double alpha = std::exp(logs[0]), rest = std::exp(logs[1]) * points[i].size, predicted = alpha + rest;
      const double residual = std::log(predicted / points[i].time);
      const double weight = std::min(1.0, huber_limit / std::max(std::abs(residual), 1e-300));
      const Eigen::Vector2d slope(alpha / predicted, rest / predicted);
      hessian += weight * slope * slope.transpose();
      gradient += weight * residual * slope;
    }
    hessian.diagonal() *= 1 + damping;
    hessian.diagonal().array() += 1e-12;
    const Eigen::Vector2d next = logs - hessian.ldlt().solve(gradient);
    const double next_cost = next.allFinite() ? cost_of(points, count, next) : 1e300;
    if (next_cost > cost) {
      damping *= 10;
      continue;
    }
    const bool settled = cost - next_cost < 1e-12 * (1 + cost);
    logs = next;
    cost = next_cost;
    damping = std::max(damping / 10, 1e-9);
    if (settled) break;
  }
  // Times that do not grow with size drive log beta to minus infinity; a rate must stay finite, so the slope keeps a billionth of the time.
  const double alpha = std::exp(logs[0]), flat = 1e-9 * points[count - 1].time / points[count - 1].size;
  return {alpha, std::max(std::exp(logs[1]), flat), cost};
}

std::vector<Point> points_of(const Samples& samples) {
  std::vector<Point> points;
  const std::size_t step = std::max<std::size_t>(1, (samples.size() + most_points - 1) / most_points);
  for (std::size_t i = 0; i < samples.size(); i += step)
    points.push_back({static_cast<double>(samples[i].size.value()), samples[i].median.base()});
  return points;
}

/// Lines of all intervals of points, each computed once.
class Lines {
 public:
  explicit Lines(const std::vector<Point>& points) : points_(points), lines_(points.size() * points.size()) {
    for (std::size_t begin = 0; begin < points.size(); ++begin)
      for (std::size_t end = begin + std::min(points_per_segment, points.size()); end <= points.size(); ++end)
        lines_[begin * points.size() + end - 1] = fit_line(&points[begin], end - begin);
  }
  [[nodiscard]] const Line& at(std::size_t begin, std::size_t end) const { return lines_[begin * points_.size() + end - 1]; }

 private:
  const std::vector<Point>& points_;
  std::vector<Line> lines_;
};

struct Partition {
  double cost = 1e300;
  std::vector<std::size_t> ends;  // one past the last point of each segment
};

Partition best_partition(const Lines& lines, std::size_t points, int count) {
  const std::size_t least = std::min(points_per_segment, points);
  std::vector<Partition> best(points + 1);
  for (std::size_t end = least; end <= points; ++end) best[end] = {lines.at(0, end).cost, {end}};
  for (int k = 2; k <= count; ++k) {
    std::vector<Partition> next(points + 1);
    for (std::size_t end = least * static_cast<std::size_t>(k); end <= points; ++end)
      for (std::size_t begin = least * static_cast<std::size_t>(k - 1); begin + least <= end; ++begin) {
        const double cost = best[begin].cost + lines.at(begin, end).cost;
        if (cost >= next[end].cost) continue;
        next[end] = {cost, best[begin].ends};
        next[end].ends.push_back(end);
      }
    best = std::move(next);
  }
  return best[points];
}

double information_criterion(const Partition& partition, std::size_t points, int count) {
  const auto n = static_cast<double>(points);
  return n * std::log(std::max(partition.cost / n, noise_floor)) + (3 * count - 1) * std::log(n);
}

std::vector<CollectiveSegment> segments_of(const Lines& lines, const std::vector<Point>& points, const Partition& partition) {
  std::vector<CollectiveSegment> segments;
  std::size_t begin = 0;
  for (const std::size_t end : partition.ends) {
    const Line& line = lines.at(begin, end);
    CollectiveSegment segment{std::nullopt, Seconds{line.alpha}, ByteRate{1 / line.beta}};
    if (end < points.size()) segment.limit = Bytes{static_cast<std::int64_t>(points[end - 1].size)};
    segments.push_back(segment);
    begin = end;
  }
  return segments;
}

}  // namespace

std::vector<CollectiveSegment> fit_segments(const Samples& samples, int count) {
  const std::vector<Point> points = points_of(samples);
  if (points.empty()) return {};
  if (points.size() < 2) return {{std::nullopt, Seconds{}, Bytes{samples[0].size} / samples[0].median}};
  const Lines lines(points);
  const int possible = std::clamp(static_cast<int>(points.size() / points_per_segment), 1, most_segments);
  Partition best;
  double best_criterion = 1e300;
  for (int k = count == 0 ? 1 : std::min(count, possible); k <= (count == 0 ? possible : std::min(count, possible)); ++k) {
    const Partition partition = best_partition(lines, points.size(), k);
    const double criterion = information_criterion(partition, points.size(), k);
    if (criterion >= best_criterion) continue;
    best = partition;
    best_criterion = criterion;
  }
  return segments_of(lines, points, best);
}

std::vector<CollectiveSegment> rounded(std::vector<CollectiveSegment> segments) {
  const auto digits = [](double value) {
    if (value <= 0) return value;
    const double scale = std::pow(10.0, 3 - std::floor(std::log10(value)));
    return std::round(value * scale) / scale;
  };
  for (CollectiveSegment& segment : segments) {
    segment.alpha = microseconds(digits(segment.alpha.base() * 1e6));
    segment.algbw = ByteRate{digits(segment.algbw.base())};
  }
  return segments;
}

std::vector<CollectiveSegment> least_squares_line(const Samples& samples) {
  Eigen::MatrixXd a(static_cast<Eigen::Index>(samples.size()), 2);
  Eigen::VectorXd b(static_cast<Eigen::Index>(samples.size()));
  for (Eigen::Index i = 0; i < b.size(); ++i) {
    const auto& sample = samples[static_cast<std::size_t>(i)];
    a(i, 0) = 1;
    a(i, 1) = static_cast<double>(sample.size.value());
    b[i] = sample.median.base();
  }
  const Eigen::VectorXd x = a.colPivHouseholderQr().solve(b);
  return {{std::nullopt, Seconds{x[0]}, ByteRate{1 / x[1]}}};
}

std::vector<double> leave_one_out_errors(const Samples& samples) {
  std::vector<double> errors;
  for (std::size_t i = 1; i + 1 < samples.size(); ++i) {
    CollectiveFit others;
    others.samples = samples;
    others.samples.erase(others.samples.begin() + static_cast<std::ptrdiff_t>(i));
    errors.push_back(std::abs(CollectiveCurve(others).at(samples[i].size) / samples[i].median - 1));
  }
  return errors;
}

void fit_curve(CollectiveFit& fit) {
  fit.segments = fit_segments(fit.samples);
  const std::vector<double> errors = leave_one_out_errors(fit.samples);
  if (errors.empty()) return;
  fit.leave_one_out_median = median(errors);
  fit.leave_one_out_p90 = percentile(errors, 0.9);
}

}  // namespace shardsim
