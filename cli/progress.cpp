// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "shardsim/report.hpp"

namespace shardsim {
namespace {

constexpr std::uint64_t bar_columns = 20;

std::string remaining(double seconds) {
  const auto whole = static_cast<std::uint64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

}  // namespace

std::string progress_line(const std::string& what, std::uint64_t done, std::uint64_t total, std::uint64_t before, double elapsed) {
  const std::uint64_t filled = total == 0 ? bar_columns : done * bar_columns / total;
  std::string line = fmt::format("{} [{:#<{}}{:.<{}}] {}/{}", what, "", filled, "", bar_columns - filled,
                                 grouped(static_cast<std::int64_t>(done)), grouped(static_cast<std::int64_t>(total)));
  if (done <= before || elapsed <= 0) return line;
  const double rate = static_cast<double>(done - before) / elapsed;
  return line + fmt::format("  {:.{}f}/s  ETA {}", rate, rate < 10 ? 1 : 0, remaining(static_cast<double>(total - done) / rate));
}

ProgressBar::ProgressBar(std::string what, std::uint64_t total, std::uint64_t done)
    : what_(std::move(what)),
      total_(total),
      before_(done),
      done_(done),
      shown_(::isatty(STDERR_FILENO) == 1),
      began_(std::chrono::steady_clock::now()),
      drawn_(began_) {}

ProgressBar::~ProgressBar() {
  if (shown_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::advance(std::uint64_t count) {
  const std::scoped_lock lock(mutex_);
  done_ += count;
  const auto now = std::chrono::steady_clock::now();
  if (!shown_ || (now - drawn_ < std::chrono::milliseconds(100) && done_ != total_)) return;
  drawn_ = now;
  const double elapsed = std::chrono::duration<double>(now - began_).count();
  std::string line = progress_line(what_, done_, total_, before_, elapsed);
  line.resize(std::min(line.size(), terminal_columns(STDERR_FILENO) - 1));  // a line that wraps could not be drawn over
  fmt::print(stderr, "\r\x1b[K{}", line);
  std::fflush(stderr);
}

}  // namespace shardsim
