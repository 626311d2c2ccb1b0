// SPDX-License-Identifier: Apache-2.0
// What a calibration has measured so far, kept next to the profile it will write: an interrupted run loses nothing, and the next one of
// the same job goes on from there. Shared by `calibrate local`, `mpi`, `cuda` and `nccl`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/base/journal.hpp"

namespace shardsim {

/// Lines of text in the caller's own words. Each is on disk when add() returns: a run may be killed at any moment.
class SampleJournal {
 public:
  /// Keeps nothing.
  SampleJournal() = default;
  /// `path`: the journal; empty: keeps nothing. `job`: what is measured on which machine, in one line; lines of another job are dropped.
  /// A path that cannot be written is an EnvironmentError.
  SampleJournal(const std::string& path, const std::string& job);

  /// What an interrupted run of the same job left, in the order measured.
  [[nodiscard]] const std::vector<std::string>& earlier() const { return earlier_; }
  /// Earlier lines that begin with `word` and a blank, without both.
  [[nodiscard]] std::vector<std::string> earlier(const std::string& word) const;
  /// One measurement, without a line break. Forked processes may add to the same journal.
  void add(const std::string& line);

 private:
  std::unique_ptr<Journal> journal_;
  std::vector<std::string> earlier_;
};

/// "profile.yaml" -> "profile.yaml.samples"; nothing for standard output.
[[nodiscard]] std::string journal_path(const std::string& output);

/// Once the profile is written. An empty path is nothing.
void remove_journal(const std::string& path);

}  // namespace shardsim
