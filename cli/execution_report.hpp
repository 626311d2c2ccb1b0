// SPDX-License-Identifier: Apache-2.0
// What `execute` found, as JSON (shardsim.execute/1), as a table and as a page.
#pragma once

#include <string>
#include <vector>

#include "calibrate/execute/execution.hpp"
#include "reports/html.hpp"
#include "reports/json.hpp"

namespace shardsim {

/// One strategy's execution beside its simulation.
struct Execution {
  execute::ExecutionResult result;
  Seconds predicted_step;                ///< one operation after another, as backends execute them
  Seconds overlapped_step;               ///< with streams beside each other, as a GPU runs them
  double psi_units = 0;                  ///< of one step (see Traffic)
  Bytes textbook{};                      ///< what the papers count for one step of a rank
  std::optional<double> time_tolerance{};  ///< relative; without it time decides nothing

  [[nodiscard]] Seconds measured_step() const;  ///< the median
  [[nodiscard]] bool agree() const;
};

struct ExecutionSummary {
  std::string backend;
  std::string scenario;
  std::int64_t ranks = 1;
  std::vector<Execution> strategies;
  bool calibrated = false;  ///< predicted on a profile of the machine that ran
};

[[nodiscard]] Json execution_json(const ExecutionSummary& summary);
[[nodiscard]] std::string execution_table(const ExecutionSummary& summary);
/// Predicted beside measured, by strategy and rank (execution_html.cpp).
[[nodiscard]] HtmlPage execution_page(const ExecutionSummary& summary);

}  // namespace shardsim
