// SPDX-License-Identifier: Apache-2.0
// Man page and shell completion, made from the table of commands.
#pragma once

#include <string>

#include "cli/command.hpp"

namespace shardsim {

/// roff with the man macros, section 1.
[[nodiscard]] std::string man_page(const Command& program);

[[nodiscard]] std::string bash_completion(const Command& program);
[[nodiscard]] std::string zsh_completion(const Command& program);
[[nodiscard]] std::string fish_completion(const Command& program);

}  // namespace shardsim
