// SPDX-License-Identifier: Apache-2.0
// Microbenchmarks on NVIDIA GPUs. Built with -DSHARDSIM_GPU=ON where CUDA is found; otherwise the functions say that they are missing.
#pragma once

#include "calibrate/progress.hpp"
#include "sim/core/profile.hpp"

namespace shardsim {

/// `base` with what one GPU of this machine measures: launch cost, products, memory-bound kernels, host link.
/// EnvironmentError without a GPU or in a build without CUDA.
[[nodiscard]] Profile calibrate_cuda(Profile base, const Progress& progress);

/// `base` with all-reduce, all-gather, reduce-scatter and broadcast of the GPUs of this machine over NCCL.
/// EnvironmentError with fewer than two GPUs or in a build without NCCL.
[[nodiscard]] Profile calibrate_nccl(Profile base, const Progress& progress);

}  // namespace shardsim
