// SPDX-License-Identifier: Apache-2.0
// Rows of a long sweep on disk: none lost, none twice, whatever kills the process.
//
// Rows are appended to OUTPUT.<fingerprint>.part, each line starting with its row's number; the file gets its real name when all are
// there. After a kill the same sweep finds that file, drops a last line that was cut, and goes on with the rows that are missing.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace shardsim {

/// The number at the start of a row: `17,...` in CSV, `{"index":17,...` in JSON lines; -1 if there is none.
[[nodiscard]] std::int64_t row_number(std::string_view line);

class SweepJournal {
 public:
  /// `header` is the first line of the file (without its end), or empty. A file that cannot be opened or written, or that another process
  /// is writing, is an EnvironmentError.
  SweepJournal(std::string output, std::uint64_t fingerprint, std::uint64_t rows, std::string header);
  ~SweepJournal();
  SweepJournal(const SweepJournal&) = delete;
  SweepJournal& operator=(const SweepJournal&) = delete;

  [[nodiscard]] bool done(std::uint64_t row) const { return done_[static_cast<std::size_t>(row)]; }
  [[nodiscard]] std::uint64_t done_count() const { return done_count_; }
  [[nodiscard]] const std::string& place() const { return place_; }

  /// Adds a finished row (a line without its end). May be called from any thread. What is not yet on disk when the process dies is
  /// computed again by the next.
  void append(std::string_view line);
  /// Everything to disk, and the file under its real name.
  void finish();

 private:
  void resume(const std::string& header);
  void flush();
  void synchronize();
  [[noreturn]] void fail(const char* what) const;

  std::string output_, place_;
  int descriptor_ = -1;
  std::vector<bool> done_;
  std::uint64_t done_count_ = 0;
  std::mutex mutex_;
  std::string buffer_;
  std::chrono::steady_clock::time_point flushed_, synchronized_;
};

}  // namespace shardsim
