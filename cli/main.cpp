// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <string>
#include <vector>

#include "cli/application.hpp"
#include "shardsim/report.hpp"

int main(int argc, char** argv) {
  shardsim::narrow_to(shardsim::terminal_columns(STDOUT_FILENO));
  const std::vector<std::string> words(argv + 1, argv + argc);
  return static_cast<int>(shardsim::run_command_line(words));
}
