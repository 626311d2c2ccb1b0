// SPDX-License-Identifier: Apache-2.0
// Gauss-Newton on logarithms, with weights that hold back outliers (Huber).
#include "studies/fit/map_fit.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "sim/base/parallel.hpp"

namespace shardsim {
namespace {

constexpr double probe = 0.02;  // step of the finite differences, in logarithms
constexpr int rounds = 4;
constexpr double outlier = 2;       // deviations beyond which a step counts less
constexpr double told_below = 0.8;  // deviation after / before: what the steps must take away to count as telling
constexpr std::size_t fewest_left_out = 2;

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

class Fitter {
 public:
  explicit Fitter(const FactorProblem& problem)
      : problem_(problem), steps_(problem.measured.size()), factors_(problem.factors.size()), free_(factors_, true) {}

  FactorFit run() {
    FactorFit fit;
    logs_ = Vector::Zero(index(factors_));
    const Vector before = residuals();
    solve();
    for (std::size_t k = 0; k < factors_; ++k)
      if (deviation(k) > told_below * prior_deviation(k)) free_[k] = false;
    if (std::find(free_.begin(), free_.end(), false) != free_.end()) solve();
    const Vector after = residuals();
    for (std::size_t i = 0; i < steps_; ++i) {
      fit.before.push_back(std::exp(-before(index(i))) - 1);
      fit.after.push_back(std::exp(-after(index(i))) - 1);
    }
    for (std::size_t k = 0; k < factors_; ++k) {
      fit.logs.push_back(logs_(index(k)));
      fit.deviation.push_back(deviation(k));
      fit.told.push_back(free_[k]);
      fit.apart.push_back(free_[k] && deviation(k) < told_below * problem_.factors[k].apart);
    }
    if (steps_ >= fewest_left_out) leave_out(after, fit);
    return fit;
  }

 private:
  static Eigen::Index index(std::size_t i) { return static_cast<Eigen::Index>(i); }

  [[nodiscard]] Vector predict(const Vector& logs) const {
    Vector times(index(steps_));
    parallel_for(steps_, available_cores(), [&](std::size_t i) { times(index(i)) = problem_.predict(i, {logs.data(), factors_}); });
    return times;
  }

  /// Measured less predicted.
  [[nodiscard]] Vector residuals() const { return Eigen::Map<const Vector>(problem_.measured.data(), index(steps_)) - predict(logs_); }

  void linearise() {
    const Vector here = predict(logs_);
    slopes_ = Matrix::Zero(index(steps_), index(factors_));
    for (std::size_t k = 0; k < factors_; ++k) {
      if (!free_[k]) continue;
      Vector moved = logs_;
      moved(index(k)) += probe;
      slopes_.col(index(k)) = (predict(moved) - here) / probe;
    }
  }

  [[nodiscard]] double prior_deviation(std::size_t k) const { return std::hypot(problem_.factors[k].together, problem_.factors[k].apart); }

  /// Inverse of the prior's covariance; a factor that is held has no room.
  [[nodiscard]] Matrix prior_precision() const {
    constexpr double held = 1e-12;
    Matrix covariance = Matrix::Zero(index(factors_), index(factors_));
    for (std::size_t k = 0; k < factors_; ++k)
      for (std::size_t l = 0; l < factors_; ++l) {
        const FactorPrior &a = problem_.factors[k], &b = problem_.factors[l];
        if (k == l)
          covariance(index(k), index(l)) = free_[k] ? a.together * a.together + a.apart * a.apart : held;
        else if (a.family == b.family && free_[k] && free_[l])
          covariance(index(k), index(l)) = a.together * b.together;
      }
    return covariance.inverse();
  }

  void weigh(const Vector& residual) {
    weights_ = Vector(index(steps_));
    for (std::size_t i = 0; i < steps_; ++i) {
      const double size = std::abs(residual(index(i))) / problem_.spread;
      weights_(index(i)) = (size > outlier ? outlier / size : 1) / (problem_.spread * problem_.spread);
    }
  }

  void solve() {
    const Matrix prior = prior_precision();
    for (std::size_t k = 0; k < factors_; ++k)
      if (!free_[k]) logs_(index(k)) = 0;
    for (int round = 0; round < rounds; ++round) {
      if (round < 2) linearise();  // later rounds move little
      const Vector residual = residuals();
      weigh(residual);
      const Matrix normal = slopes_.transpose() * weights_.asDiagonal() * slopes_ + prior;
      covariance_ = normal.inverse();
      const Vector step = covariance_ * (slopes_.transpose() * weights_.asDiagonal() * residual - prior * logs_);
      for (std::size_t k = 0; k < factors_; ++k)
        logs_(index(k)) = std::clamp(logs_(index(k)) + step(index(k)), problem_.factors[k].least, problem_.factors[k].most);
    }
  }

  [[nodiscard]] double deviation(std::size_t k) const { return std::sqrt(std::max(0.0, covariance_(index(k), index(k)))); }

  /// Of a linear fit, the residual without the step itself follows from its leverage.
  void leave_out(const Vector& residual, FactorFit& fit) const {
    const Matrix hat = slopes_ * covariance_ * slopes_.transpose() * weights_.asDiagonal();
    for (std::size_t i = 0; i < steps_; ++i) {
      const double leverage = std::min(hat(index(i), index(i)), 1 - 1e-6);
      fit.left_out.push_back(std::exp(-residual(index(i)) / (1 - leverage)) - 1);
    }
  }

  const FactorProblem& problem_;
  std::size_t steps_, factors_;
  std::vector<bool> free_;
  Vector logs_, weights_;
  Matrix slopes_, covariance_;
};

}  // namespace

FactorFit fit_factors(const FactorProblem& problem) { return Fitter(problem).run(); }

}  // namespace shardsim
