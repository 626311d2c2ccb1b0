// SPDX-License-Identifier: Apache-2.0
// From a row of a sweep to its line in the output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenarios/reader/scenario_cache.hpp"
#include "studies/simulate/prepared_job.hpp"
#include "studies/sweep/sweep_plan.hpp"

namespace shardsim {

enum class RowFormat : std::uint8_t { csv, json_lines };

/// Every single figure of `simulate`: dotted paths, in its order.
[[nodiscard]] std::vector<std::string> simulate_columns();

/// The first line of a CSV: index, the keys that vary, error, the columns. Empty for JSON lines.
[[nodiscard]] std::string sweep_header(const SweepPlan& plan, RowFormat format);

/// A line of the table, without its end.
struct SweepRow {
  std::string line;
  bool failed = false;  ///< an error in place of figures
};

/// The rows of a sweep, for one thread. What a row shares with those before it is not made again.
class SweepRows {
 public:
  SweepRows(const SweepPlan& plan, RowFormat format);

  /// Simulates row `index`. A scenario that cannot run gives a row with its error and no figures: one bad corner of a grid does not end a
  /// sweep.
  [[nodiscard]] SweepRow row(std::uint64_t index);

 private:
  struct Figures;
  [[nodiscard]] Figures simulate(std::uint64_t index);
  [[nodiscard]] std::string as_csv(std::uint64_t index, const Figures& figures) const;
  [[nodiscard]] std::string as_json(std::uint64_t index, const Figures& figures) const;

  const SweepPlan& plan_;
  RowFormat format_;
  bool all_columns_;
  std::vector<std::string> parts_;  // of the figures that the columns name
  ScenarioCache scenarios_;
  JobCache jobs_;
};

}  // namespace shardsim
