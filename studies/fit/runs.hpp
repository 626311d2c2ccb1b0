// SPDX-License-Identifier: Apache-2.0
// Measured steps of one's own: read from CSV or YAML, and what they say about a profile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/reader/scenario.hpp"
#include "studies/fit/map_fit.hpp"

namespace shardsim {

struct TimedRun {
  std::string scenario;  ///< path
  Where where;
  std::optional<Seconds> step_time;
  std::optional<double> tokens_per_second_per_gpu;
  std::optional<Bytes> peak;  ///< torch.cuda.max_memory_allocated
};

/// A table with the columns scenario, step_time_s (or step_time with a unit, or tokens_per_second_per_gpu), peak_bytes; or YAML: a list of
/// maps with these keys, or `runs:` with one. Paths are relative to the file.
[[nodiscard]] Result<std::vector<TimedRun>> load_runs(const std::string& path);

/// One key of the profile that the fit moved.
struct MovedKey {
  std::string key, from, to;
};

/// What became of one price.
struct FittedPrice {
  std::string name, family;
  double factor = 1;     ///< on the time of what it prices
  double deviation = 0;  ///< of the factor's logarithm
  bool told = false, apart = false;
  std::vector<MovedKey> keys;
};

struct FittedRun {
  TimedRun run;
  Seconds measured, before, after;
  std::optional<double> left_out;  ///< error of its time, fitted to the others alone
  std::optional<Bytes> predicted_peak;
};

struct RunFit {
  Profile profile;  ///< with the moved values and their origins
  std::vector<FittedPrice> prices;
  std::vector<FittedRun> runs;
};

/// Fits the prices of `profile`, read from the path `base`, to the runs of `file`.
[[nodiscard]] RunFit fit_runs(const std::string& file, const std::vector<TimedRun>& runs, const std::string& base,
                              const Profile& profile);

}  // namespace shardsim
