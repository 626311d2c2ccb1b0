// SPDX-License-Identifier: Apache-2.0
// NCCL's collectives, timed: all GPUs of this process, calls grouped, or one GPU of each of several processes.
#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <vector>

#include "calibrate/gpu/gpu_device.hpp"
#include "calibrate/gpu/wait.hpp"

namespace shardsim::gpu {
namespace {

/// What a rank has on its device: a stream and two buffers.
struct Member {
  Member(int index, std::size_t bytes) : device(index) {
    SHARDSIM_CHECK(cudaSetDevice(device));
    SHARDSIM_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    SHARDSIM_CHECK(cudaMalloc(&from, bytes));
    SHARDSIM_CHECK(cudaMalloc(&to, bytes));
    SHARDSIM_CHECK(cudaMemset(from, 0, bytes));
    SHARDSIM_CHECK(cudaDeviceSynchronize());  // the stream does not wait for the default stream's memset
  }
  ~Member() {
    cudaSetDevice(device);
    // After an error NCCL must not wait for ranks that are gone.
    if (communicator != nullptr) std::uncaught_exceptions() > 0 ? ncclCommAbort(communicator) : ncclCommDestroy(communicator);
    cudaFree(from);
    cudaFree(to);
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  int device;
  cudaStream_t stream = nullptr;
  void *from = nullptr, *to = nullptr;
  ncclComm_t communicator = nullptr;
};

class Timer final : public CollectiveTimer {
 public:
  Timer(std::vector<std::unique_ptr<Member>> members, int ranks) : members_(std::move(members)), ranks_(static_cast<std::size_t>(ranks)) {}

  double seconds(int kind, long long bytes, int calls) override {
    issue(0, 4);  // a small all-reduce: nobody begins before all are here
    finish();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) issue(kind, static_cast<std::size_t>(bytes));
    finish();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
  }

 private:
  void issue(int kind, std::size_t bytes) {
    SHARDSIM_CHECK(ncclGroupStart());
    for (const auto& member : members_) call(kind, bytes / 2, *member);
    SHARDSIM_CHECK(ncclGroupEnd());
  }

  void call(int kind, std::size_t count, const Member& m) {
    const std::size_t part = count / ranks_;
    switch (kind) {
      case 0:
        SHARDSIM_CHECK(ncclAllReduce(m.from, m.to, count, ncclBfloat16, ncclSum, m.communicator, m.stream));
        break;
      case 1:
        SHARDSIM_CHECK(ncclAllGather(m.from, m.to, part, ncclBfloat16, m.communicator, m.stream));
        break;
      case 2:
        SHARDSIM_CHECK(ncclReduceScatter(m.from, m.to, part, ncclBfloat16, ncclSum, m.communicator, m.stream));
        break;
      case 3:
        SHARDSIM_CHECK(ncclBroadcast(m.from, m.to, count, ncclBfloat16, 0, m.communicator, m.stream));
        break;
      default:
        throw std::logic_error("no such collective");
    }
  }

  void finish() {
    for (const auto& member : members_) {
      SHARDSIM_CHECK(cudaSetDevice(member->device));
      wait_for(member->stream, member->communicator, std::chrono::microseconds(0));
    }
  }

  std::vector<std::unique_ptr<Member>> members_;
  std::size_t ranks_;
};

}  // namespace

std::unique_ptr<CollectiveTimer> time_devices(int count, long long largest) {
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < count; ++i) members.push_back(std::make_unique<Member>(i, static_cast<std::size_t>(largest)));
  std::vector<ncclComm_t> communicators(static_cast<std::size_t>(count));
  SHARDSIM_CHECK(ncclCommInitAll(communicators.data(), count, nullptr));  // no list: devices 0 ... count - 1
  for (int i = 0; i < count; ++i) members[static_cast<std::size_t>(i)]->communicator = communicators[static_cast<std::size_t>(i)];
  return std::make_unique<Timer>(std::move(members), count);
}

std::unique_ptr<CollectiveTimer> time_rank(int device, const std::string& id, int rank, int ranks, long long largest) {
  std::vector<std::unique_ptr<Member>> members;
  members.push_back(std::make_unique<Member>(device, static_cast<std::size_t>(largest)));
  SHARDSIM_CHECK(ncclCommInitRank(&members.front()->communicator, ranks, unique_id_of(id), rank));
  return std::make_unique<Timer>(std::move(members), ranks);
}

std::string nccl_version() {
  int version = 0;
  SHARDSIM_CHECK(ncclGetVersion(&version));
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

std::string make_unique_id() {
  ncclUniqueId id;
  SHARDSIM_CHECK(ncclGetUniqueId(&id));
  return {id.internal, sizeof id.internal};
}

}  // namespace shardsim::gpu
