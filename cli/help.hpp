// SPDX-License-Identifier: Apache-2.0
// Texts made from the table of commands.
#pragma once

#include <string>
#include <vector>

#include "cli/command.hpp"

namespace shardsim {

/// What `--help` prints for the command that `path` names, at most 80 columns wide.
[[nodiscard]] std::string help_text(const Command& command, const std::vector<std::string>& path);

}  // namespace shardsim
