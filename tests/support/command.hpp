// SPDX-License-Identifier: Apache-2.0
// The program as a process of its own, through the shell.
#pragma once

#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>

namespace shardsim::test {

struct CommandResult {
  int code = -1;       ///< exit status; 128 + signal if killed
  std::string output;  ///< standard output and standard error
  double seconds = 0;
};

inline CommandResult run_command(const std::string& line) {
  const auto begin = std::chrono::steady_clock::now();
  FILE* pipe = ::popen(("(" + line + ") 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot start a shell");
  CommandResult result;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) result.output.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace shardsim::test
