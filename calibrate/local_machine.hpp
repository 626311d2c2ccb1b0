// SPDX-License-Identifier: Apache-2.0
// What calibrate local and calibrate mpi say of the machine itself: each core is a "GPU".
#pragma once

#include "calibrate/progress.hpp"
#include "sim/core/profile.hpp"

namespace shardsim {

/// This machine as one node of `cores` cores: names, memory, and what is assumed of it. `command` stands in the origins.
[[nodiscard]] Profile describe_machine(const std::string& command, int cores);

/// Memory bandwidth and fp32 products of one core, within `budget`; `progress` runs from `from` towards 1.
void measure_core(Profile& profile, Seconds budget, double from, const Progress& progress);

}  // namespace shardsim
