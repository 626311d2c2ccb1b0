// SPDX-License-Identifier: Apache-2.0
// From the words of a command line to a command of the table and its arguments.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.hpp"

namespace shardsim {

struct ParsedLine {
  const Command* command = nullptr;
  std::vector<std::string> path;  ///< names from the program down to the command: {"shardsim", "calibrate", "show"}
  Arguments arguments;
  bool help = false;
  bool version = false;
  int verbosity = 0;  ///< how often -v less how often -q
};

/// Options that every command takes.
[[nodiscard]] const std::vector<Argument>& common_arguments();

/// Unknown commands and options, missing or surplus arguments and words that are not allowed are an InputError with the nearest known
/// word. With --help or --version nothing else is checked.
[[nodiscard]] ParsedLine parse_arguments(const Command& program, std::span<const std::string> words);

}  // namespace shardsim
