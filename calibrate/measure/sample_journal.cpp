// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure/sample_journal.hpp"

#include <unistd.h>

namespace shardsim {

SampleJournal::SampleJournal(const std::string& path, const std::string& job) {
  if (path.empty()) return;
  const auto keep = [&](std::string_view line, std::int64_t) { earlier_.emplace_back(line); };
  journal_ = std::make_unique<Journal>(path, "samples 2: " + job, Journal::Pace::each_line, keep);
}

std::vector<std::string> SampleJournal::earlier(const std::string& word) const {
  std::vector<std::string> result;
  for (const std::string& line : earlier_)
    if (line.starts_with(word + ' ')) result.push_back(line.substr(word.size() + 1));
  return result;
}

void SampleJournal::add(const std::string& line) {
  if (journal_) journal_->add(line);
}

std::string journal_path(const std::string& output) { return output == "-" || output.empty() ? "" : output + ".samples"; }

void remove_journal(const std::string& path) {
  if (!path.empty()) ::unlink(path.c_str());
}

}  // namespace shardsim
