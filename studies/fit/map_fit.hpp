// SPDX-License-Identifier: Apache-2.0
// Factors on prices, fitted to measured steps: the most probable ones under a prior that leaves every price as it is.
//
// Least squares on logarithms of step times. A factor's prior has two parts: one that it shares with its family (a machine that is slow in
// one class of kernels is slow in the others), and a narrower one of its own. So a single run moves a family as a whole, several runs tell
// its members apart, and what no run depends on stays.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace shardsim {

/// What is believed of the logarithm of one factor before anything is measured: normal, about 0.
struct FactorPrior {
  std::string family;
  double together = 0;          ///< deviation that the whole family shares
  double apart = 0;             ///< deviation of its own
  double least = -3, most = 3;  ///< bounds: an efficiency cannot exceed 1
};

struct FactorProblem {
  std::vector<FactorPrior> factors;
  std::vector<double> measured;  ///< logarithms of step times
  double spread = 0.01;          ///< deviation of a measured logarithm
  /// The predicted logarithm of a step's time under these logarithms of factors. Called from several threads.
  std::function<double(std::size_t step, std::span<const double> logs)> predict;
};

struct FactorFit {
  std::vector<double> logs;           ///< of the factors; 0 where the steps do not tell
  std::vector<double> deviation;      ///< of each, after the fit
  std::vector<bool> told;             ///< whether the steps say something about it
  std::vector<bool> apart;            ///< whether they tell it from the rest of its family
  std::vector<double> before, after;  ///< predicted / measured - 1 of each step's time
  std::vector<double> left_out;       ///< the same of each step, fitted to the others alone; empty for fewer than two
};

[[nodiscard]] FactorFit fit_factors(const FactorProblem& problem);

}  // namespace shardsim
