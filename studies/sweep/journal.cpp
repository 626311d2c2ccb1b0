// SPDX-License-Identifier: Apache-2.0
#include "studies/sweep/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

using namespace std::chrono_literals;

// A kill costs at most what was computed since the last write; a power cut what was written since the last synchronisation.
constexpr std::size_t write_bytes = std::size_t{1} << 16;
constexpr auto write_interval = 200ms;
constexpr auto synchronize_interval = 10s;

/// Calls take(line, end) for each complete line, where `end` is the offset behind it, until it returns false.
template <class Take>
void for_each_line(int descriptor, Take take) {
  std::string pending;
  std::vector<char> block(std::size_t{1} << 18);
  off_t offset = 0;
  while (true) {
    const ssize_t count = ::pread(descriptor, block.data(), block.size(), offset + static_cast<off_t>(pending.size()));
    if (count <= 0) return;
    pending.append(block.data(), static_cast<std::size_t>(count));
    std::size_t begin = 0;
    for (std::size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n', begin)) {
      if (!take(std::string_view(pending).substr(begin, end - begin), offset + static_cast<off_t>(end) + 1)) return;
      begin = end + 1;
    }
    pending.erase(0, begin);
    offset += static_cast<off_t>(begin);
  }
}

}  // namespace

std::int64_t row_number(std::string_view line) {
  constexpr std::string_view json = "{\"index\":";
  if (line.starts_with(json)) line.remove_prefix(json.size());
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  return error == std::errc{} && end != line.data() + line.size() && *end == ',' ? number : -1;
}

SweepJournal::SweepJournal(std::string output, std::uint64_t fingerprint, std::uint64_t rows, std::string header)
    : output_(std::move(output)), place_(fmt::format("{}.{:016x}.part", output_, fingerprint)), done_(static_cast<std::size_t>(rows)) {
  descriptor_ = ::open(place_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("cannot open");
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    ::close(std::exchange(descriptor_, -1));
    throw EnvironmentError(fmt::format("another process is writing {}", place_));
  }
  resume(header);
  flushed_ = synchronized_ = std::chrono::steady_clock::now();
}

SweepJournal::~SweepJournal() {
  if (descriptor_ < 0) return;
  // An exception is on its way: keep what is finished, and let it pass whatever happens here.
  try {
    flush();
  } catch (const std::exception&) { buffer_.clear(); }
  ::close(descriptor_);
}

void SweepJournal::fail(const char* what) const { throw EnvironmentError(fmt::format("{} {}: {}", what, place_, std::strerror(errno))); }

/// Reads what an earlier process left; everything from the first line that is no row of this sweep is cut off.
void SweepJournal::resume(const std::string& header) {
  off_t good = 0;
  bool at_header = !header.empty();
  for_each_line(descriptor_, [&](std::string_view line, off_t end) {
    if (std::exchange(at_header, false)) {
      if (line != header) return false;
    } else {
      const std::int64_t row = row_number(line);
      if (row < 0 || static_cast<std::uint64_t>(row) >= done_.size() || done_[static_cast<std::size_t>(row)]) return false;
      done_[static_cast<std::size_t>(row)] = true;
      ++done_count_;
    }
    good = end;
    return true;
  });
  if (::ftruncate(descriptor_, good) != 0) fail("cannot cut the torn end of");
  if (good == 0 && !header.empty()) {
    buffer_ = header + "\n";
    flush();
  }
}

void SweepJournal::append(std::string_view line) {
  const std::scoped_lock lock(mutex_);
  buffer_ += line;
  buffer_ += '\n';
  const auto now = std::chrono::steady_clock::now();
  if (buffer_.size() < write_bytes && now - flushed_ < write_interval) return;
  flush();
  flushed_ = now;
  if (now - synchronized_ < synchronize_interval) return;
  synchronize();
  synchronized_ = now;
}

void SweepJournal::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("cannot write");
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  buffer_.clear();
}

void SweepJournal::synchronize() {
  // Pipes and some file systems cannot synchronise; that is no loss of rows.
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL && errno != EROFS) fail("cannot write");
}

void SweepJournal::finish() {
  const std::scoped_lock lock(mutex_);
  flush();
  synchronize();
  if (std::rename(place_.c_str(), output_.c_str()) != 0) fail("cannot rename");
  ::close(std::exchange(descriptor_, -1));
}

}  // namespace shardsim
