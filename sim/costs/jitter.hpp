// SPDX-License-Identifier: Apache-2.0
// What a job loses to ranks and calls that differ by chance: a step goes on when its slowest rank has come.
#pragma once

#include <cstdint>

namespace shardsim {

/// Mean of the largest of n independent standard normal values: 0 for one, 1.42 for 8, 2.6 for 128, 3.24 for 1,024.
/// SOURCE: Blom, Statistical Estimates and Transformed Beta-Variables (1958): the (n - 0.375) / (n + 0.25) quantile; off by less than 0.02
/// here.
[[nodiscard]] double expected_maximum(std::int64_t n);

/// How many times as long something takes as on one rank when n ranks, each of mean 1 and standard deviation `spread`, must all be done.
[[nodiscard]] double slowest_of(double spread, std::int64_t n);

/// A standard normal value that depends on the seed and the two numbers alone: the same for the same sample on any machine, in any order.
[[nodiscard]] double sampled_normal(std::uint64_t seed, std::uint64_t rank, std::uint64_t call);

}  // namespace shardsim
