// SPDX-License-Identifier: Apache-2.0
// NCCL between the GPUs of this process: one communicator for each, calls grouped.
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <stdexcept>
#include <vector>

#include "calibrate/gpu/check.hpp"
#include "calibrate/gpu_device.hpp"

namespace shardsim::gpu {
namespace {

/// A communicator, a stream and two buffers on every device.
class Ranks {
 public:
  Ranks(int count, std::size_t bytes) : communicators_(count), streams_(count), from_(count), to_(count) {
    std::vector<int> devices(count);
    for (int i = 0; i < count; ++i) devices[i] = i;
    check(ncclCommInitAll(communicators_.data(), count, devices.data()), "ncclCommInitAll");
    for (int i = 0; i < count; ++i) {
      check(cudaSetDevice(i), "cudaSetDevice");
      check(cudaStreamCreate(&streams_[i]), "cudaStreamCreate");
      check(cudaMalloc(&from_[i], bytes), "cudaMalloc");
      check(cudaMalloc(&to_[i], bytes), "cudaMalloc");
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
    check(ncclGroupStart(), "ncclGroupStart");
    for (std::size_t i = 0; i < streams_.size(); ++i) call(kind, bytes, i);
    check(ncclGroupEnd(), "ncclGroupEnd");
  }

  void finish() {
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      check(cudaSetDevice(static_cast<int>(i)), "cudaSetDevice");
      check(cudaStreamSynchronize(streams_[i]), "cudaStreamSynchronize");
    }
  }

 private:
  // Kinds are indices into all_collectives: all_reduce, all_gather, reduce_scatter, broadcast.
  void call(int kind, std::size_t bytes, std::size_t i) {
    const std::size_t count = bytes / 2, part = count / streams_.size();
    switch (kind) {
      case 0: check(ncclAllReduce(from_[i], to_[i], count, ncclBfloat16, ncclSum, communicators_[i], streams_[i]), "ncclAllReduce"); break;
      case 1: check(ncclAllGather(from_[i], to_[i], part, ncclBfloat16, communicators_[i], streams_[i]), "ncclAllGather"); break;
      case 2: check(ncclReduceScatter(from_[i], to_[i], part, ncclBfloat16, ncclSum, communicators_[i], streams_[i]), "ncclReduceScatter"); break;
      case 3: check(ncclBroadcast(from_[i], to_[i], count, ncclBfloat16, 0, communicators_[i], streams_[i]), "ncclBroadcast"); break;
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
  check(ncclGetVersion(&version), "ncclGetVersion");
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

}  // namespace shardsim::gpu
