// SPDX-License-Identifier: Apache-2.0
// When communication is exposed: what a timeline marks.
#pragma once

#include <vector>

#include "sim/engine/result.hpp"

namespace shardsim {

struct TimeSpan {
  SimTime begin, end;
};

/// The spans in which a collective runs and neither a kernel nor an optimizer update does, in order and apart from each other. Their
/// lengths add up to StepTime::exposed_communication.
[[nodiscard]] std::vector<TimeSpan> exposed_communication(const Schedule& schedule, const Timeline& timeline);

}  // namespace shardsim
