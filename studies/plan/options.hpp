// SPDX-License-Identifier: Apache-2.0
// Which values of a strategy's options are the fastest: buckets, prefetch, resharding, the size of a shard group.
#pragma once

#include <string>
#include <vector>

#include "scenarios/reader/scenario.hpp"

namespace shardsim {

/// One option, on the best values of those before it.
struct TriedOption {
  std::string name;                 ///< "bucket_cap_mb"
  std::vector<std::string> values;  ///< that were simulated and fit, as in the scenario
  std::string best;                 ///< empty: what the scenario has is the fastest
  double saved = 0;                 ///< share of the step that `best` saves
};

struct TunedOptions {
  std::vector<TriedOption> tried;
  Seconds before, after;
  bool fits_before = true;  ///< the scenario as written
  [[nodiscard]] double saved() const { return 1 - after / before; }
  /// "strategy.bucket_cap_mb=100", one for each option with a best value.
  [[nodiscard]] std::vector<std::string> assignments() const;
};

/// Simulates the usual values of each option that the scenario's strategy has, one option after the other: a later one is tried on the best
/// of those before it. Values that the library forbids, or with which the scenario does not fit with `headroom` to spare, are passed over.
/// Where the scenario does not fit, values count that make it fit, each by itself.
[[nodiscard]] TunedOptions tune_options(const Scenario& base, double headroom = 0);

}  // namespace shardsim
