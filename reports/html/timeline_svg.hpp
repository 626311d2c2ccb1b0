// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sim/engine/result.hpp"

namespace shardsim {

/// The step as a picture for documents: a row for the host, for each stream and for exposed communication, and allocated memory below.
/// Coordinates are whole pixels, so that equal results give equal files and small changes of time small differences. Needs
/// Detail::timeline.
[[nodiscard]] std::string timeline_svg(const SimulationResult& result);

}  // namespace shardsim
