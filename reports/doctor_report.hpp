// SPDX-License-Identifier: Apache-2.0
// What `doctor` found, as text.
#pragma once

#include <string>

#include "calibrate/doctor/machine_facts.hpp"

namespace shardsim {

/// `base`: the shipped profile of these GPUs, or empty. `written`: the profile that is written, or empty.
[[nodiscard]] std::string doctor_text(const MachineFacts& facts, const std::string& base, const std::string& written);

}  // namespace shardsim
