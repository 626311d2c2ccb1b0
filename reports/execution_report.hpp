// SPDX-License-Identifier: Apache-2.0
// What `execute` found, as JSON (shardsim.execute/1), as a table and as a page.
#pragma once

#include <string>
#include <vector>

#include "reports/html/html.hpp"
#include "sim/base/json_value.hpp"
#include "studies/execute/execution_job.hpp"

namespace shardsim {

[[nodiscard]] Json execution_json(const ExecutionSummary& summary);
[[nodiscard]] std::string execution_table(const ExecutionSummary& summary);
/// Predicted beside measured, by strategy and rank (execution_html.cpp).
[[nodiscard]] HtmlPage execution_page(const ExecutionSummary& summary);

}  // namespace shardsim
