// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure/sample_journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

std::string title(const std::string& job) { return "shardsim samples 1: " + job; }

/// Complete lines of the file behind its title; nothing if it is of another job. A last line without its end was cut by the interruption.
std::vector<std::string> lines_of(const std::string& path, const std::string& job) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream whole;
  whole << in.rdbuf();
  std::string text = whole.str();
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != title(job)) return {};
  std::vector<std::string> result;
  while (std::getline(lines, line)) result.push_back(line);
  return result;
}

}  // namespace

SampleJournal::SampleJournal(const std::string& path, const std::string& job) : path_(path) {
  if (path_.empty()) return;
  earlier_ = lines_of(path_, job);
  // Written anew beside, then renamed: a line that was cut must not run into the next, and nothing is lost in between.
  const std::string fresh = path_ + ".new";
  file_ = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) throw EnvironmentError(fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
  add(title(job));
  for (const std::string& line : earlier_) add(line);
  if (std::rename(fresh.c_str(), path_.c_str()) != 0)
    throw EnvironmentError(fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
}

SampleJournal::~SampleJournal() {
  if (file_ >= 0) ::close(file_);
}

SampleJournal::SampleJournal(SampleJournal&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), earlier_(std::move(other.earlier_)) {}

SampleJournal& SampleJournal::operator=(SampleJournal&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(earlier_, other.earlier_);
  return *this;
}

std::vector<std::string> SampleJournal::earlier(const std::string& word) const {
  std::vector<std::string> result;
  for (const std::string& line : earlier_)
    if (line.starts_with(word + ' ')) result.push_back(line.substr(word.size() + 1));
  return result;
}

void SampleJournal::add(const std::string& line) {
  if (file_ < 0) return;
  const std::string text = line + '\n';
  std::size_t done = 0;  // one write in practice; O_APPEND keeps those of several processes apart
  while (done < text.size()) {
    const ssize_t wrote = ::write(file_, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw EnvironmentError(fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
    done += static_cast<std::size_t>(wrote);
  }
}

std::string journal_path(const std::string& output) { return output == "-" || output.empty() ? "" : output + ".samples"; }

void remove_journal(const std::string& path) {
  if (!path.empty()) ::unlink(path.c_str());
}

}  // namespace shardsim
