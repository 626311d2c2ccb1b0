// SPDX-License-Identifier: Apache-2.0
// The two sections of a page that draw a step over time.
#pragma once

#include "reports/html/html.hpp"
#include "reports/html/timeline_bars.hpp"
#include "sim/engine/result.hpp"

namespace shardsim {

/// Memory by category over the step, with the capacity and the peak.
[[nodiscard]] HtmlSection memory_section(const SimulationResult& result);

/// One row for the host, one a stream, and one of exposed communication.
[[nodiscard]] HtmlSection timeline_section(const SimulationResult& result);

}  // namespace shardsim
