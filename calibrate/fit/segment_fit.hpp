// SPDX-License-Identifier: Apache-2.0
// Fits of measured collective times: one to four alpha-beta segments.
#pragma once

#include <vector>

#include "sim/machine/profile.hpp"

namespace shardsim {

using Samples = std::vector<CollectiveFit::Sample>;

inline constexpr int most_segments = 4;

/// The `count` segments T(S) = alpha + S / algbw that minimise the sum of huber(log T - log measured) over the medians: log residuals,
/// because times span five decades and plain least squares would fit the largest alone. Breakpoints by dynamic programming, the limit of
/// a segment being its largest size. `count` 0: chosen by the Bayesian information criterion. Fewer where points do not suffice.
[[nodiscard]] std::vector<CollectiveSegment> fit_segments(const Samples& samples, int count = 0);

/// The segments with four significant digits of each value, as people write them.
[[nodiscard]] std::vector<CollectiveSegment> rounded(std::vector<CollectiveSegment> segments);

/// One alpha-beta line by plain least squares on seconds. To show how bad it is for small sizes; no profile uses it.
[[nodiscard]] std::vector<CollectiveSegment> least_squares_line(const Samples& samples);

/// Relative errors |predicted / measured - 1| of each sample but the first and last, predicted from all others.
[[nodiscard]] std::vector<double> leave_one_out_errors(const Samples& samples);

/// Fills in the segments and the leave-one-out errors of a fit from its samples.
void fit_curve(CollectiveFit& fit);

}  // namespace shardsim
