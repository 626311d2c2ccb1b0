// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

namespace shardsim {

/// Told now and then: how much is done (0 to 1) and what is being measured.
using Progress = std::function<void(double share, const std::string& what)>;

}  // namespace shardsim
