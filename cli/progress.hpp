// SPDX-License-Identifier: Apache-2.0
// How far a long command is: one line on standard error, on a terminal only.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace shardsim {

class ProgressBar {
 public:
  /// `done` of `total` were there before this process began (they do not count for its speed).
  ProgressBar(std::string what, std::uint64_t total, std::uint64_t done = 0);
  ~ProgressBar();  ///< clears the line
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void advance(std::uint64_t count = 1);  ///< from any thread

 private:
  std::string what_;
  std::uint64_t total_, before_, done_;
  bool shown_;
  std::chrono::steady_clock::time_point began_, drawn_;
  std::mutex mutex_;
};

/// "[#####.....]  1,234/5,000  310/s  ETA 12 s" for `elapsed` seconds of work on done - before items.
[[nodiscard]] std::string progress_line(const std::string& what, std::uint64_t done, std::uint64_t total, std::uint64_t before,
                                        double elapsed);

}  // namespace shardsim
