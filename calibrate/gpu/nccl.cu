// SPDX-License-Identifier: Apache-2.0
// NCCL between the GPUs of this process: one communicator for each, calls grouped.
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <stdexcept>
#include <vector>

#include "calibrate/gpu/status.hpp"
#include "calibrate/gpu_device.hpp"

namespace shardsim::gpu {
namespace {

/// A communicator, a stream and two buffers on every device.
class Ranks {
 public:
  Ranks(int count, std::size_t bytes) : communicators_(count), streams_(count), from_(count), to_(count) {
    std::vector<int> devices(count);
    for (int i = 0; i < count; ++i) devices[i] = i;
    SHARDSIM_CHECK(ncclCommInitAll(communicators_.data(), count, devices.data()));
    for (int i = 0; i < count; ++i) {
      SHARDSIM_CHECK(cudaSetDevice(i));
      SHARDSIM_CHECK(cudaStreamCreate(&streams_[i]));
      SHARDSIM_CHECK(cudaMalloc(&from_[i], bytes));
      SHARDSIM_CHECK(cudaMalloc(&to_[i], bytes));
    }
  }
  ~Ranks() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      cudaSetDevice(static_cast<int>(i));
      cudaFree(from_[i]);
      cudaFree(to_[i]);
      cudaStreamDestroy(streams_[i]);
      ncclCommDestroy(communicators_[i]);
    }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void issue(int kind, std::size_t bytes) {
    SHARDSIM_CHECK(ncclGroupStart());
    for (std::size_t i = 0; i < streams_.size(); ++i) call(kind, bytes, i);
    SHARDSIM_CHECK(ncclGroupEnd());
  }

  void finish() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      SHARDSIM_CHECK(cudaSetDevice(static_cast<int>(i)));
      SHARDSIM_CHECK(cudaStreamSynchronize(streams_[i]));
    }
  }

 private:
  // Kinds are indices into all_collectives: all_reduce, all_gather, reduce_scatter, broadcast.
  void call(int kind, std::size_t bytes, std::size_t i) {
    const std::size_t count = bytes / 2, part = count / streams_.size();
    switch (kind) {
      case 0: SHARDSIM_CHECK(ncclAllReduce(from_[i], to_[i], count, ncclBfloat16, ncclSum, communicators_[i], streams_[i])); break;
      case 1: SHARDSIM_CHECK(ncclAllGather(from_[i], to_[i], part, ncclBfloat16, communicators_[i], streams_[i])); break;
      case 2: SHARDSIM_CHECK(ncclReduceScatter(from_[i], to_[i], part, ncclBfloat16, ncclSum, communicators_[i], streams_[i])); break;
      case 3: SHARDSIM_CHECK(ncclBroadcast(from_[i], to_[i], count, ncclBfloat16, 0, communicators_[i], streams_[i])); break;
      default: throw std::logic_error("no such collective");
    }
  }

  std::vector<ncclComm_t> communicators_;
  std::vector<cudaStream_t> streams_;
  std::vector<void*> from_, to_;
};

}  // namespace

std::vector<CollectiveTiming> nccl_timings(const std::vector<int>& kinds, const std::vector<long long>& sizes, int rounds) {
  Ranks ranks(device_count(), static_cast<std::size_t>(sizes.back()));
  std::vector<CollectiveTiming> timings;
  constexpr int calls = 10;  // a launch is amortised over them, as in a training step that runs ahead of the GPU
  for (int round = -1; round < rounds; ++round)
    for (const long long bytes : sizes)
      for (const int kind : kinds) {
        ranks.finish();
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < calls; ++i) ranks.issue(kind, static_cast<std::size_t>(bytes));
        ranks.finish();
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
        if (round >= 0) timings.push_back({kind, bytes, seconds});  // round -1 warms up
      }
  return timings;
}

std::string nccl_version() {
  int version = 0;
  SHARDSIM_CHECK(ncclGetVersion(&version));
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

}  // namespace shardsim::gpu
