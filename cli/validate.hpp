// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/command.hpp"

namespace shardsim {

[[nodiscard]] Command validate_command();

}  // namespace shardsim
