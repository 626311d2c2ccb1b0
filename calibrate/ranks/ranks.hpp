// SPDX-License-Identifier: Apache-2.0
// N ranks as N processes of this machine, and the line each has to the parent: for meeting, barriers and results, never for payload.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "calibrate/ranks/line.hpp"
#include "calibrate/ranks/mesh.hpp"

namespace shardsim::execute {

struct RanksOptions {
  std::chrono::milliseconds patience{600'000};  ///< no rank has said anything for so long: one of them has stopped
  std::chrono::milliseconds grace{2'000};       ///< after the first rank has failed, how long the others may take to notice by themselves
};

/// Forks `n` processes that run `body`, and returns what each came to, by rank. If one fails, all end: an exception of `body` comes
/// back as EnvironmentError (or std::logic_error, if it was one), and so does a rank that was killed. No process outlives the call, nor
/// the parent (PR_SET_PDEATHSIG). Call it before any thread exists.
[[nodiscard]] std::vector<std::string> run_ranks(int n, const RankBody& body, const RanksOptions& options = {});

}  // namespace shardsim::execute
