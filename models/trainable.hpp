// SPDX-License-Identifier: Apache-2.0
// Which parameters train: all, LoRA adapters, or those whose names match patterns. Private to models/.
#pragma once

#include <string_view>

#include "models/architecture.hpp"
#include "models/families/hf_config.hpp"

namespace shardsim {

/// The architecture's tables with trainability as `trainable` says. Targets and patterns that match nothing are problems.
[[nodiscard]] Tables tables_for(const Architecture& architecture, const Trainable& trainable, const Adaptation& adaptation,
                                Problems& problems);

/// Shell-style match of a whole name: * is any run of characters, ? is one, [abc] one of a set.
[[nodiscard]] bool glob_matches(std::string_view pattern, std::string_view name);

}  // namespace shardsim
