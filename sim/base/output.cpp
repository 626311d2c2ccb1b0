// SPDX-License-Identifier: Apache-2.0
#include "sim/base/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
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

/// Another user may have put the link into a shared folder, to have a file of ours replaced.
bool is_link_of_another_user(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode) && status.st_uid != ::geteuid() && status.st_uid != 0;
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

}  // namespace

Output::Output(std::string path) : path_(std::move(path)) {
  if (path_.empty()) throw InputError("the name of an output is empty");
  if (path_ == "-") return;
  if (is_link_of_another_user(path_))
    throw EnvironmentError(fmt::format("{} is a link that another user has made: it is not written through", printable(path_)));
  struct stat status {};
  const bool exists = ::stat(path_.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {
    file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));  // a folder fails here
    if (!file_.valid()) fail("cannot write");
    return;
  }
  place_ = behind_links(path_);
  const auto writable = [](const std::string& file) { return ::access(file.c_str(), W_OK) == 0; };
  if ((exists && !writable(place_)) || !writable(folder_of(place_))) fail("cannot write");
}

Output::Output(Output&& other) noexcept
    : path_(std::move(other.path_)),
      place_(std::move(other.place_)),
      draft_(std::exchange(other.draft_, {})),
      file_(std::move(other.file_)) {}

Output& Output::operator=(Output&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(place_, other.place_);
  std::swap(draft_, other.draft_);
  std::swap(file_, other.file_);
  return *this;
}

Output::~Output() {
  if (!draft_.empty()) ::unlink(draft_.c_str());
}

void Output::keep_apart_from(std::span<const std::string> inputs) const {
  struct stat own {};
  if (place_.empty() || ::stat(place_.c_str(), &own) != 0) return;
  for (const std::string& input : inputs) {
    struct stat other {};
    if (::stat(input.c_str(), &other) == 0 && other.st_dev == own.st_dev && other.st_ino == own.st_ino)
      throw InputError(fmt::format("{} is read by this command: writing it as an output would destroy it", in_quotes(path_)));
  }
}

void Output::make_draft() {
  struct stat old {};
  const bool replaces = ::stat(place_.c_str(), &old) == 0;
  do {
    draft_ = fmt::format("{}.{:016x}.draft", place_, random_number());
    file_ = Descriptor(::open(draft_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  } while (!file_.valid() && errno == EEXIST);
  if (!file_.valid()) {
    draft_.clear();
    fail("cannot write");
  }
  if (replaces && ::fchmod(file_.get(), old.st_mode & 07777) != 0) errno = 0;  // keeping the old file's mode is a courtesy only
}

void Output::write(std::string_view text) {
  if (path_ != "-" && !file_.valid()) make_draft();
  if (!write_all(path_ == "-" ? STDOUT_FILENO : file_.get(), text)) fail("cannot write");
}

void Output::synchronize() {
  // Pipes and some file systems cannot synchronise.
  if (file_.valid() && ::fdatasync(file_.get()) != 0 && errno != EINVAL && errno != EROFS) fail("cannot write");
}

void Output::commit() {
  if (path_ == "-") return;
  if (!file_.valid()) make_draft();  // an empty file
  if (!file_.reset()) fail("cannot finish");
  if (place_.empty()) return;
  if (std::rename(draft_.c_str(), place_.c_str()) != 0) fail("cannot replace");
  draft_.clear();
}

void Output::fail(const char* what) const {
  if (errno == EPIPE) throw ClosedPipe();
  throw EnvironmentError(fmt::format("{} {}: {}", what, path_ == "-" ? "standard output" : printable(path_), std::strerror(errno)));
}

void write_output(const std::string& path, std::string_view text, std::span<const std::string> inputs) {
  Output output(path);
  output.keep_apart_from(inputs);
  output.write(text);
  output.commit();
}

}  // namespace shardsim
