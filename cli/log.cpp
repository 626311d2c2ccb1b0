// SPDX-License-Identifier: Apache-2.0
#include "cli/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <memory>
#include <sstream>

#include "shardsim/expected.hpp"

namespace shardsim {
namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("shardsim", std::make_shared<spdlog::sinks::stderr_color_sink_st>());
    made->set_pattern("%^%l%$: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *instance;
}

/// Names in a message may hold anything: escapes would reach the terminal. Its own line ends stay.
std::string on_lines_of_its_own(const std::string& message) {
  std::string out;
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) out += (out.empty() ? "" : "\n") + printable(line, std::string::npos);
  return out;
}

}  // namespace

void set_verbosity(int verbosity) {
  const auto level = verbosity < 0    ? spdlog::level::err
                     : verbosity == 0 ? spdlog::level::warn
                     : verbosity == 1 ? spdlog::level::info
                                      : spdlog::level::debug;
  logger().set_level(level);
}

void log_info(const std::string& message) { logger().info(on_lines_of_its_own(message)); }
void log_note(const std::string& message) {
  if (logger().should_log(spdlog::level::warn)) std::fputs((on_lines_of_its_own(message) + "\n").c_str(), stderr);
}
void log_warning(const std::string& message) { logger().warn(on_lines_of_its_own(message)); }

}  // namespace shardsim
