// SPDX-License-Identifier: Apache-2.0
// This machine as a cluster of one node whose "GPUs" are its cores: what `execute` runs on.
#pragma once

#include "calibrate/progress.hpp"
#include "sim/core/profile.hpp"

namespace shardsim {

struct LocalOptions {
  int ranks = 0;             ///< of the ring; 0: one for each core, at least 2 and at most 8
  Seconds budget{20};        ///< for everything
};

/// Memory bandwidth, fp32 products and ring collectives over loop-back TCP between processes. Call it before any thread exists.
[[nodiscard]] Profile calibrate_local(const LocalOptions& options, const Progress& progress);

}  // namespace shardsim
