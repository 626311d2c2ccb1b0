// SPDX-License-Identifier: Apache-2.0
// This machine as a cluster of one node whose "GPUs" are its cores: what `execute` runs on.
#pragma once

#include "calibrate/measure/progress.hpp"
#include "calibrate/measure/ring_timing.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

struct LocalOptions {
  int ranks = 0;       ///< of the ring; 0: one for each core, at least 2 and at most 8
  Seconds budget{20};  ///< for everything
  RingTiming rings{};  ///< sizes and groups; the time is a share of the budget
  execute::MeshOptions network{};
  std::string journal{};  ///< file that keeps the samples of an interrupted run (sample_journal.hpp); empty: none
};

/// Memory bandwidth, fp32 products and collectives over TCP between processes (all-reduce, all-gather, reduce-scatter, broadcast). Call it
/// before any thread exists.
[[nodiscard]] Profile calibrate_local(const LocalOptions& options, const Progress& progress);

}  // namespace shardsim
