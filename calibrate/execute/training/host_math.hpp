// SPDX-License-Identifier: Apache-2.0
// The kernels of kernels.hpp as a Math: numbers lie in the host's memory.
#pragma once

#include "calibrate/execute/training/math.hpp"

namespace shardsim::execute {

/// One serves everybody: it keeps nothing.
[[nodiscard]] Math& host_math();

}  // namespace shardsim::execute
