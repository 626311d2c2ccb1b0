// SPDX-License-Identifier: Apache-2.0
// What rows say next to each other: scaling, order of strategies; and their memory.
#pragma once

#include "studies/validate/validation.hpp"

namespace shardsim {

/// Fills scaling, order, memory and verdicts of a report from its rows.
void compare_rows(ValidationReport& report);

}  // namespace shardsim
