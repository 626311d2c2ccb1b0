// SPDX-License-Identifier: Apache-2.0
// A cluster profile for people: its values with their origins, and each collective measured against fitted.
#pragma once

#include <string>

#include "sim/machine/profile.hpp"

namespace shardsim {

[[nodiscard]] std::string profile_text(const Profile& profile);

}  // namespace shardsim
