// SPDX-License-Identifier: Apache-2.0
// Traces of the PyTorch profiler (Kineto, Chrome format): times of NCCL kernels by size, and of matrix products by shape.
#pragma once

#include "calibrate/fit/gemm_fit.hpp"
#include "calibrate/import/collective_samples.hpp"
#include "calibrate/import/nccl_tests.hpp"

namespace shardsim {

struct KinetoTrace {
  struct CollectiveCall {
    CollectiveSamples::Group group;
    Bytes payload;  ///< the full buffer
    Seconds time;   ///< of the kernel: waiting for late ranks included
  };
  std::string gpu;
  std::int64_t world_size = 0;
  std::vector<CollectiveCall> collectives;
  GemmPoints products;       ///< aten::mm and aten::addmm whose kernel is known
  std::int64_t kernels = 0;  ///< compute kernels in all
  Seconds kernel_time;
  std::vector<Warning> warnings;
};

/// Sizes come from the kernels' own arguments (PyTorch 2.2 and later), else from the "nccl:" annotations, which are matched in order.
/// `ranks_per_node`: to place groups; eight unless told otherwise.
[[nodiscard]] Result<KinetoTrace> read_kineto(const Source& source, std::int64_t ranks_per_node = 8);

/// The samples of a trace. Only the minimum of a size tells the collective's own time: the rest waits for other ranks.
[[nodiscard]] CollectiveSamples samples_of(const KinetoTrace& trace, const std::string& source);

}  // namespace shardsim
