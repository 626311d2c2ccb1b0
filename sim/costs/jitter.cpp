// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/jitter.hpp"

#include <cmath>
#include <numbers>

namespace shardsim {
namespace {

/// Where the standard normal distribution reaches p, for p >= 0.5. SOURCE: Abramowitz and Stegun, 26.2.23, and one step of Newton.
double normal_quantile(double p) {
  const double t = std::sqrt(-2 * std::log(1 - p));
  const double x = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  const double below = 0.5 * std::erfc(-x / std::numbers::sqrt2);
  const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  return x - (below - p) / density;
}

/// SOURCE: Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators (OOPSLA 2014): the mixing of SplitMix64.
std::uint64_t mixed(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

double uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53; }  // in (0, 1)

}  // namespace

double expected_maximum(std::int64_t n) {
  if (n < 2) return 0;
  const auto ranks = static_cast<double>(n);
  return normal_quantile((ranks - 0.375) / (ranks + 0.25));
}

double slowest_of(double spread, std::int64_t n) { return spread > 0 ? 1 + spread * expected_maximum(n) : 1; }

double sampled_normal(std::uint64_t seed, std::uint64_t rank, std::uint64_t call) {
  const std::uint64_t first = mixed(mixed(mixed(seed) ^ rank) ^ call);
  return std::sqrt(-2 * std::log(uniform(first))) * std::cos(2 * std::numbers::pi * uniform(mixed(first)));
}

}  // namespace shardsim
