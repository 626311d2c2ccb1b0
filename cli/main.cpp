// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "cli/application.hpp"

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return static_cast<int>(shardsim::run_command_line(words));
}
