// SPDX-License-Identifier: Apache-2.0
// Names as people read them.
#pragma once

#include <string>
#include <string_view>

#include "sim/base/collective.hpp"
#include "sim/schedule/schedule.hpp"

namespace shardsim {

/// "all-gather".
[[nodiscard]] std::string display_name(Collective collective);
/// "optimizer states".
[[nodiscard]] std::string display_name(Category category);

}  // namespace shardsim
