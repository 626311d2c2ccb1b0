// SPDX-License-Identifier: Apache-2.0
// Lines that reach the disk as the work goes on, so that an interrupted run loses nothing: samples of a calibration, rows of a sweep.
//
// A line of the file is eight hexadecimal digits, a blank and the text; the digits are the CRC-32 of the text. The first line is the title,
// which says whose lines they are. What is not whole or does not match its checksum is dropped, and the lines around it stay.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "sim/base/descriptor.hpp"

namespace shardsim {

/// Called with the text of a line and the offset at which it stands in the file.
using TakeLine = std::function<void(std::string_view text, std::int64_t offset)>;

/// A journal that is only read; another process may be adding to it.
class JournalReader {
 public:
  /// Not valid where there is no such file, or it has another title.
  JournalReader(const std::string& path, std::string_view title);
  [[nodiscard]] bool valid() const { return file_.valid(); }
  /// Calls `take` for each whole line behind the title. Returns how many were damaged.
  std::int64_t each_line(const TakeLine& take) const;
  /// The line that stands at `offset`; nothing if it is damaged or not there any more.
  [[nodiscard]] std::optional<std::string> line_at(std::int64_t offset) const;

 private:
  Descriptor file_;
};

/// A journal that this process adds to. A line that was cut by an interruption is cut off when it is opened.
class Journal {
 public:
  /// When lines reach the file: each before add() returns, or some at a time (a kill then costs what the last fifth of a second brought).
  enum class Pace : std::uint8_t { each_line, batches };

  /// Opens or makes the file and calls `take` for each line that an earlier process left under the same title; lines of another title are
  /// dropped. A link, a file that is not a journal, one that another process adds to and one that cannot be written are EnvironmentErrors.
  Journal(std::string path, std::string_view title, Pace pace, const TakeLine& take);
  ~Journal();  ///< writes what is left, as far as that is possible
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// One line without its end, from any thread. With Pace::each_line forked processes may add to the same journal.
  void add(std::string_view text);
  /// Everything to the disk; nothing can be added any more.
  void close();
  /// Lines of an earlier process that did not match their checksum.
  [[nodiscard]] std::int64_t damaged() const { return damaged_; }

 private:
  void open();
  void resume(std::string_view title, const TakeLine& take);
  void flush();
  void synchronize();
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  Pace pace_;
  Descriptor file_;
  std::int64_t damaged_ = 0;
  std::mutex mutex_;
  std::string buffer_;
  std::chrono::steady_clock::time_point flushed_, synchronized_;
};

}  // namespace shardsim
