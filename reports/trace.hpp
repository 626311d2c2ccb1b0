// SPDX-License-Identifier: Apache-2.0
// The timeline of a step in the Trace Event format that Perfetto and chrome://tracing read (object form).
#pragma once

#include <string>

#include "sim/engine/result.hpp"

namespace shardsim {

/// One row for the host and one for each stream; a counter track of memory by category. Begin and end are rounded to nanoseconds, so
/// that neighbours on a row touch and never overlap. The result needs its timeline (Detail::timeline).
[[nodiscard]] std::string chrome_trace(const SimulationResult& result);

}  // namespace shardsim
