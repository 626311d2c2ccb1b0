// SPDX-License-Identifier: Apache-2.0
#include "reports/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

/// The file that a chain of links ends at, so that renaming replaces the file and not the link.
std::string behind_links(const std::string& path) {
  std::error_code error;
  const auto real = std::filesystem::weakly_canonical(path, error);
  return error ? path : real.string();
}

}  // namespace

Output::Output(std::string path) : path_(std::move(path)) {
  if (path_ == "-") {
    descriptor_ = STDOUT_FILENO;
    return;
  }
  struct stat status {};
  const bool exists = stat(path_.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);  // a folder fails here
    if (descriptor_ < 0) fail("cannot write");
    return;
  }
  place_ = behind_links(path_);
  if (exists && access(place_.c_str(), W_OK) != 0) fail("cannot write");
  temporary_ = fmt::format("{}.{}.part", place_, getpid());
  descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    temporary_.clear();
    fail("cannot write");
  }
  if (exists && fchmod(descriptor_, status.st_mode & 07777) != 0) errno = 0;  // keeping the old file's mode is a courtesy only
}

Output::Output(Output&& other) noexcept
    : path_(std::move(other.path_)),
      place_(std::move(other.place_)),
      temporary_(std::exchange(other.temporary_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

Output& Output::operator=(Output&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(place_, other.place_);
  std::swap(temporary_, other.temporary_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Output::~Output() {
  if (descriptor_ >= 0 && descriptor_ != STDOUT_FILENO) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void Output::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot write");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void Output::commit() {
  if (descriptor_ == STDOUT_FILENO) return;
  const int closed = close(std::exchange(descriptor_, -1));
  if (closed != 0) fail("cannot finish");
  if (place_.empty()) return;
  if (std::rename(temporary_.c_str(), place_.c_str()) != 0) fail("cannot replace");
  temporary_.clear();
}

void Output::fail(const char* what) const {
  if (errno == EPIPE) throw ClosedPipe();
  throw EnvironmentError(fmt::format("{} {}: {}", what, path_ == "-" ? "standard output" : path_, std::strerror(errno)));
}

void write_output(const std::string& path, std::string_view text) {
  Output output(path);
  output.write(text);
  output.commit();
}

}  // namespace shardsim
