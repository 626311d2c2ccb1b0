// SPDX-License-Identifier: Apache-2.0
// Factors fitted to steps: a family moves as a whole on one run, its members apart on several, and what no run depends on stays.
#include "studies/fit/map_fit.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace shardsim {
namespace {

/// Steps that are sums of parts: time = sum of share[k] * exp(log[k]).
FactorProblem sums(std::vector<std::vector<double>> shares, const std::vector<double>& truth) {
  FactorProblem problem;
  problem.factors = {{"kernels", 0.3, 0.1, -3, 3}, {"kernels", 0.3, 0.1, -3, 3}, {"host", 0.5, 0.2, -3, 3}};
  problem.predict = [shares](std::size_t i, std::span<const double> logs) {
    double time = 0;
    for (std::size_t k = 0; k < logs.size(); ++k) time += shares[i][k] * std::exp(logs[k]);
    return std::log(time);
  };
  for (std::size_t i = 0; i < shares.size(); ++i) problem.measured.push_back(problem.predict(i, truth));
  return problem;
}

TEST(FactorFit, OneRunMovesItsFamilyAsAWhole) {
  const double slow = std::log(1.25);
  const FactorFit fit = fit_factors(sums({{0.7, 0.3, 0.0}}, {slow, slow, 0}));
  EXPECT_NEAR(fit.logs[0], slow, 0.01);
  EXPECT_NEAR(fit.logs[1], slow, 0.01);
  EXPECT_EQ(fit.logs[2], 0) << "no step depends on the host";
  EXPECT_TRUE(fit.told[0] && fit.told[1]);
  EXPECT_FALSE(fit.told[2]);
  EXPECT_FALSE(fit.apart[1]) << "one step cannot tell the two classes of kernels apart";
  EXPECT_NEAR(fit.after[0], 0, 0.005);
  EXPECT_NEAR(fit.before[0], 1 / 1.25 - 1, 1e-9);
  EXPECT_TRUE(fit.left_out.empty());
}

TEST(FactorFit, SeveralRunsTellMembersApart) {
  const FactorFit fit = fit_factors(sums({{0.9, 0.1, 0.0}, {0.2, 0.8, 0.0}, {0.5, 0.5, 0.0}, {0.1, 0.1, 0.8}}, {0.1, -0.15, 0.4}));
  EXPECT_NEAR(fit.logs[0], 0.1, 0.02);
  EXPECT_NEAR(fit.logs[1], -0.15, 0.02);
  EXPECT_NEAR(fit.logs[2], 0.4, 0.03);
  EXPECT_TRUE(fit.apart[0] && fit.apart[1] && fit.told[2]);
  ASSERT_EQ(fit.left_out.size(), 4U);
  EXPECT_LT(std::abs(fit.left_out[2]), 0.02);
}

TEST(FactorFit, BoundsHold) {
  FactorProblem problem = sums({{1.0, 0.0, 0.0}}, {-0.5, 0, 0});
  problem.factors[0].least = -0.1;
  EXPECT_GE(fit_factors(problem).logs[0], -0.1);
}

TEST(FactorFit, AnOutlierDoesNotDecide) {
  std::vector<std::vector<double>> shares(9, {0.6, 0.4, 0.0});
  FactorProblem problem = sums(shares, {0.1, 0.1, 0});
  problem.measured[4] += 1;
  EXPECT_NEAR(fit_factors(problem).logs[0], 0.1, 0.03);
}

}  // namespace
}  // namespace shardsim
