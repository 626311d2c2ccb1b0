// SPDX-License-Identifier: Apache-2.0
#include "sim/base/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/crc.hpp>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <utility>
#include <vector>

#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

using namespace std::chrono_literals;

// A kill costs at most what was added since the last write; a power cut what was written since the last synchronisation.
constexpr std::size_t write_bytes = std::size_t{1} << 16;
constexpr auto write_interval = 200ms;
constexpr auto synchronize_interval = 10s;

constexpr std::size_t checksum_digits = 8;
constexpr std::string_view first_word = "shardsim ";  // every title begins with it

std::uint32_t checksum(std::string_view text) {
  boost::crc_32_type crc;
  crc.process_bytes(text.data(), text.size());
  return crc.checksum();
}

void put_line(std::string& out, std::string_view text) { fmt::format_to(std::back_inserter(out), "{:08x} {}\n", checksum(text), text); }

/// The text of a line of the file (without its end), if its checksum is right.
std::optional<std::string_view> text_of_line(std::string_view line) {
  if (line.size() <= checksum_digits || line[checksum_digits] != ' ') return std::nullopt;
  std::uint32_t written = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + checksum_digits, written, 16);
  if (error != std::errc{} || end != line.data() + checksum_digits) return std::nullopt;
  line.remove_prefix(checksum_digits + 1);
  return checksum(line) == written ? std::optional(line) : std::nullopt;
}

/// What stands in a file from `offset` on, at most `most` bytes.
std::string read_at(int file, std::int64_t offset, std::size_t most) {
  std::string text(most, '\0');
  std::size_t size = 0;
  while (size < most) {
    const ssize_t count = ::pread(file, text.data() + size, most - size, offset + static_cast<off_t>(size));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    size += static_cast<std::size_t>(count);
  }
  text.resize(size);
  return text;
}

/// Calls take(line, offset) for each line from `offset` on that has its end. Returns the offset behind the last.
std::int64_t each_raw_line(int file, std::int64_t offset, const TakeLine& take) {
  constexpr std::size_t block = std::size_t{1} << 18;
  std::string pending;
  while (true) {
    const std::string more = read_at(file, offset + static_cast<std::int64_t>(pending.size()), block);
    if (more.empty()) return offset;
    pending += more;
    std::size_t begin = 0;
    for (std::size_t end = pending.find('\n'); end != std::string::npos; end = pending.find('\n', begin)) {
      take(std::string_view(pending).substr(begin, end - begin), offset + static_cast<std::int64_t>(begin));
      begin = end + 1;
    }
    pending.erase(0, begin);
    offset += static_cast<std::int64_t>(begin);
  }
}

struct Lines {
  std::int64_t damaged = 0;
  std::int64_t end = 0;  ///< the offset behind the last whole line
};

/// The lines behind the first.
Lines each_text(int file, const TakeLine& take) {
  Lines lines;
  bool title = true;
  lines.end = each_raw_line(file, 0, [&](std::string_view line, std::int64_t offset) {
    if (std::exchange(title, false)) return;
    if (const auto text = text_of_line(line))
      take(*text, offset);
    else
      ++lines.damaged;
  });
  return lines;
}

enum class Title : std::uint8_t { none, own, of_another, not_a_journal };

Title title_of(int file, std::string_view title) {
  constexpr std::size_t longest_title = 4096;
  const std::string begin = read_at(file, 0, longest_title);
  const std::size_t end = begin.find('\n');
  if (end == std::string::npos) return begin.size() < longest_title ? Title::none : Title::not_a_journal;  // cut, or not even begun
  const auto text = text_of_line(std::string_view(begin).substr(0, end));
  if (!text || !text->starts_with(first_word)) return Title::not_a_journal;
  return text->substr(first_word.size()) == title ? Title::own : Title::of_another;
}

}  // namespace

JournalReader::JournalReader(const std::string& path, std::string_view title)
    : file_(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)) {
  if (file_.valid() && title_of(file_.get(), title) != Title::own) file_.reset();
}

std::int64_t JournalReader::each_line(const TakeLine& take) const { return each_text(file_.get(), take).damaged; }

std::optional<std::string> JournalReader::line_at(std::int64_t offset) const {
  for (std::size_t most = std::size_t{1} << 12;; most *= 8) {
    const std::string text = read_at(file_.get(), offset, most);
    const std::size_t end = text.find('\n');
    if (end == std::string::npos && text.size() == most) continue;
    if (end == std::string::npos) return std::nullopt;
    const auto line = text_of_line(std::string_view(text).substr(0, end));
    return line ? std::optional<std::string>(*line) : std::nullopt;
  }
}

Journal::Journal(std::string path, std::string_view title, Pace pace, const TakeLine& take) : path_(std::move(path)), pace_(pace) {
  open();
  resume(title, take);
  flushed_ = synchronized_ = std::chrono::steady_clock::now();
}

Journal::~Journal() {
  if (!file_.valid()) return;
  try {
    flush();
  } catch (const std::exception&) { buffer_.clear(); }  // an exception is on its way already
}

void Journal::open() {
  file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666));
  if (!file_.valid() && errno == ELOOP)
    throw EnvironmentError(fmt::format("{} is a link: journals are not written through links", printable(path_)));
  if (!file_.valid()) fail("cannot open");
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) fail("cannot open");
  if (!S_ISREG(status.st_mode) || status.st_nlink > 1)
    throw EnvironmentError(fmt::format("{} is not a file of its own: journals are not written to it", printable(path_)));
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)  // some file systems have no locks
    throw EnvironmentError(fmt::format("another process is writing {}", printable(path_)));
}

void Journal::resume(std::string_view title, const TakeLine& take) {
  const Title found = title_of(file_.get(), title);
  if (found == Title::not_a_journal)
    throw EnvironmentError(
        fmt::format("{} is not a journal of shardsim, or its first line is damaged: it is left as it is; move it away", printable(path_)));
  Lines lines;
  if (found == Title::own) lines = each_text(file_.get(), take);
  damaged_ = lines.damaged;
  if (::ftruncate(file_.get(), lines.end) != 0) fail("cannot cut the torn end of");
  if (found == Title::own) return;
  put_line(buffer_, std::string(first_word).append(title));
  flush();
}

void Journal::add(std::string_view text) {
  const std::scoped_lock lock(mutex_);
  put_line(buffer_, text);
  if (pace_ == Pace::each_line) return flush();
  const auto now = std::chrono::steady_clock::now();
  if (buffer_.size() < write_bytes && now - flushed_ < write_interval) return;
  flush();
  flushed_ = now;
  if (now - synchronized_ < synchronize_interval) return;
  synchronize();
  synchronized_ = now;
}

void Journal::flush() {
  if (!write_all(file_.get(), buffer_)) fail("cannot write");  // one write in practice; O_APPEND keeps those of several processes apart
  buffer_.clear();
}

void Journal::synchronize() {
  // Some file systems cannot synchronise; that is not a loss of lines.
  if (::fdatasync(file_.get()) != 0 && errno != EINVAL && errno != EROFS) fail("cannot write");
}

void Journal::close() {
  const std::scoped_lock lock(mutex_);
  flush();
  synchronize();
  if (!file_.reset()) fail("cannot finish");
}

void Journal::fail(const char* what) const {
  throw EnvironmentError(fmt::format("{} {}: {}", what, printable(path_), std::strerror(errno)));
}

}  // namespace shardsim
