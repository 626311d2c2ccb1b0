// SPDX-License-Identifier: Apache-2.0
#include "cli/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

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

}  // namespace

void set_verbosity(int verbosity) {
  const auto level = verbosity < 0    ? spdlog::level::err
                     : verbosity == 0 ? spdlog::level::warn
                     : verbosity == 1 ? spdlog::level::info
                                      : spdlog::level::debug;
  logger().set_level(level);
}

void log_info(const std::string& message) { logger().info(message); }
void log_warning(const std::string& message) { logger().warn(message); }

}  // namespace shardsim
