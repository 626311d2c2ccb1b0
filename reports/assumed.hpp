// SPDX-License-Identifier: Apache-2.0
// What every report says at its end: what it assumes, sorted by effect, and what it warns of.
#pragma once

#include <string>
#include <vector>

#include "sim/engine/assumption.hpp"

namespace shardsim {

/// `more`: assumptions of the question asked, as sentences (a plan's token budget). Empty where there is nothing to say.
[[nodiscard]] std::string assumed_text(const Assumptions& assumed, const std::vector<std::string>& more = {});
[[nodiscard]] std::string warnings_text(const std::vector<std::string>& warnings);

}  // namespace shardsim
