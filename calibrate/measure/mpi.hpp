// SPDX-License-Identifier: Apache-2.0
// The ranks that mpirun or srun has started, as a cluster: rings over MPI between them, and one core of the first.
#pragma once

#include "calibrate/execute/backends/backend.hpp"
#include "calibrate/measure/progress.hpp"
#include "calibrate/measure/ring_timing.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

struct MpiOptions {
  Seconds budget{20};
  RingTiming rings{};
  std::string journal{};  ///< file that keeps the samples of an interrupted run, written by rank 0; empty: none
};

/// All ranks of `platform` call it together. The profile is whole on the rank that reports.
[[nodiscard]] Profile calibrate_mpi(execute::Platform& platform, const MpiOptions& options, const Progress& progress);

}  // namespace shardsim
