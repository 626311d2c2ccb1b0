// SPDX-License-Identifier: Apache-2.0
// What `execute` found, as one page: every strategy in one table, predicted beside measured.
#pragma once

#include <string>

#include "cli/execution_report.hpp"

namespace shardsim {

[[nodiscard]] std::string execution_html(const ExecutionSummary& summary);

}  // namespace shardsim
