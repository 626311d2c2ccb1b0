// SPDX-License-Identifier: Apache-2.0
// The table of subcommands: one function a file, one line a command in commands.cpp.
#pragma once

#include "cli/command.hpp"

namespace shardsim {

[[nodiscard]] Command simulate_command();
[[nodiscard]] Command compare_command();
[[nodiscard]] Command calibrate_command();
[[nodiscard]] Command execute_command();
[[nodiscard]] Command import_command();
[[nodiscard]] Command check_command();
[[nodiscard]] Command formula_command();
[[nodiscard]] Command list_command();
[[nodiscard]] Command generate_command();
[[nodiscard]] Command plan_command();
[[nodiscard]] Command sweep_command();
[[nodiscard]] Command verify_command();
[[nodiscard]] Command init_command();
[[nodiscard]] Command doctor_command();

/// The whole program: what stands before the subcommand, and the subcommands.
[[nodiscard]] const Command& program();

}  // namespace shardsim
