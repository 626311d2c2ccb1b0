// SPDX-License-Identifier: Apache-2.0
// The program without its main(): parses, runs, and turns whatever goes wrong into a message and an exit code.
#pragma once

#include <span>
#include <string>

#include "cli/exit_code.hpp"

namespace shardsim {

[[nodiscard]] ExitCode run_command_line(std::span<const std::string> words);

}  // namespace shardsim
