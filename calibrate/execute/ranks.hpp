// SPDX-License-Identifier: Apache-2.0
// N ranks as N processes of this machine, and the line each has to the parent: for meeting, barriers and results, never for payload.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "calibrate/execute/mesh.hpp"

namespace shardsim::execute {

/// A rank's line to the parent.
class ParentLine {
 public:
  explicit ParentLine(Descriptor socket) : socket_(std::move(socket)) {}

  /// Everybody's `text`, by rank, once all ranks have called this. Also serves as a barrier.
  [[nodiscard]] std::vector<std::string> gather(const std::string& text);
  void barrier() { (void)gather({}); }
  /// A Rendezvous for Mesh.
  [[nodiscard]] std::vector<std::vector<int>> meet(const std::vector<int>& ports);

 private:
  Descriptor socket_;
};

/// What a rank does in its own process; the text it returns goes to the parent.
using RankBody = std::function<std::string(int rank, ParentLine& line)>;

struct RanksOptions {
  std::chrono::milliseconds grace{2'000};  ///< after the first rank has failed, how long the others may take to notice by themselves
};

/// Forks `n` processes that run `body`, and returns what each came to, by rank. If one fails, all end: an exception of `body` comes
/// back as EnvironmentError (or std::logic_error, if it was one), and so does a rank that was killed. No process outlives the call, nor
/// the parent (PR_SET_PDEATHSIG). Call it before any thread exists.
[[nodiscard]] std::vector<std::string> run_ranks(int n, const RankBody& body, const RanksOptions& options = {});

}  // namespace shardsim::execute
