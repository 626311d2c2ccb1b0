// SPDX-License-Identifier: Apache-2.0
// Waiting for a collective that another rank may never join. For nvcc only.
#pragma once

#include <chrono>
#include <thread>

#include "calibrate/gpu/status.hpp"

namespace shardsim::gpu {

/// A collective of gigabytes takes seconds; a rank that has stopped, and neither dies nor joins, takes for ever.
inline constexpr std::chrono::minutes longest_wait{5};

/// Until the stream is done, or longest_wait has passed. A kernel that waits for a dead rank never ends: after a second the communicator is
/// asked too, and its error thrown. `pause`: between two looks at the stream; none where microseconds count.
inline void wait_for(cudaStream_t stream, ncclComm_t communicator, std::chrono::microseconds pause) {
  using Clock = std::chrono::steady_clock;
  for (const auto begin = Clock::now();;) {
    const cudaError_t status = cudaStreamQuery(stream);
    if (status == cudaSuccess) return;
    cudaGetLastError();  // "not ready" is kept as an error, which later launches would find
    if (status != cudaErrorNotReady) SHARDSIM_CHECK(status);
    const bool patient = Clock::now() - begin < std::chrono::seconds(1);
    if (Clock::now() - begin > longest_wait) throw Failure("a collective did not end within five minutes: another rank has stopped");
    if (!patient) {
      ncclResult_t state = ncclSuccess;
      SHARDSIM_CHECK(ncclCommGetAsyncError(communicator, &state));
      if (state != ncclInProgress) SHARDSIM_CHECK(state);
    }
    if (!patient || pause.count() > 0) std::this_thread::sleep_for(patient ? pause : std::chrono::microseconds(1000));
  }
}

}  // namespace shardsim::gpu
