// SPDX-License-Identifier: Apache-2.0
// One simulated step as a page: memory over the step, timeline, traffic, and where the time goes.
#pragma once

#include "reports/html/html.hpp"
#include "sim/engine/result.hpp"

namespace shardsim {

/// The result needs its timeline (Detail::timeline).
[[nodiscard]] HtmlPage simulate_page(const SimulationResult& result);

}  // namespace shardsim
