// SPDX-License-Identifier: Apache-2.0
// Microbenchmarks on NVIDIA GPUs. Built with -DSHARDSIM_GPU=ON where CUDA is found; otherwise the functions say that they are missing.
#pragma once

#include <optional>
#include <string>

#include "calibrate/measure/progress.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

/// `base` with what the GPUs of this machine measure: launch cost, products, memory-bound kernels, fused AdamW, host link; with two or
/// more, products beside a collective. Attention in pieces is noted, not used: flash attention's share of the peak stays the base's.
/// `journal`: where products are kept as they are measured (see SampleJournal; empty: nowhere), and found by the next run.
/// EnvironmentError without a GPU or in a build without CUDA.
[[nodiscard]] Profile calibrate_cuda(Profile base, const std::string& journal, const Progress& progress);

struct NcclOptions {
  std::string groups;   ///< "2,4,8": ranks that are timed together, the first of all; empty: all
  std::string journal;  ///< where samples are kept as they come; empty: nowhere
};

/// `base` with all-reduce, all-gather, reduce-scatter and broadcast over NCCL: between the GPUs of this process, or between the ranks that
/// torchrun, mpirun or srun started, a GPU each. Nothing in ranks other than the first: one writes what was measured.
/// EnvironmentError with fewer than two ranks or in a build without NCCL.
[[nodiscard]] std::optional<Profile> calibrate_nccl(Profile base, const NcclOptions& options, const Progress& progress);

}  // namespace shardsim
