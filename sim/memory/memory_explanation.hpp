// SPDX-License-Identifier: Apache-2.0
// Why a rank needs as much memory as it does, and what would lower it. A value that reports read; every figure in it was simulated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/memory/memory.hpp"

namespace shardsim {

/// One row of the breakdown at the peak, and the same row at the peak of the job on twice as many ranks.
struct MemoryTerm {
  Category category = Category::parameters;
  Bytes bytes;
  std::optional<Bytes> on_twice_the_ranks;  ///< nothing where the job cannot run on them
  [[nodiscard]] bool falls() const { return on_twice_the_ranks && 10 * on_twice_the_ranks->value() < 9 * bytes.value(); }
};

/// The job with a single thing changed.
struct MemoryChange {
  std::string text;                      ///< "full activation checkpointing"
  std::vector<std::string> assignments;  ///< as for --set
  std::vector<std::string> config;       ///< the same in the words of the tool that runs the job
  Bytes device_peak;
  bool fits = true;
  double time = 0;     ///< of a token on a GPU, relative: 0.2 is a fifth slower
  double traffic = 0;  ///< bytes sent a token, relative
};

struct MemoryExplanation {
  std::vector<MemoryTerm> terms;        ///< largest first; without those that are zero on either number of ranks
  std::vector<MemoryChange> changes;    ///< that lower the peak, cheapest in time first
  std::optional<std::size_t> cheapest;  ///< of them: that makes the job fit, or lowers the peak by a twentieth where it fits already
  std::int64_t tried = 0;
};

}  // namespace shardsim
