// SPDX-License-Identifier: Apache-2.0
// NCCL as a Communicator: thin wrappers, each call on the device's own stream.
#include <chrono>
#include <exception>
#include <memory>

#include "calibrate/gpu/cuda_device.hpp"
#include "calibrate/gpu/gpu_device.hpp"
#include "calibrate/gpu/wait.hpp"

namespace shardsim::gpu {
namespace {

ncclDataType_t type_of(execute::Wire wire) { return wire == execute::Wire::bf16 ? ncclBfloat16 : ncclFloat32; }
ncclRedOp_t operation(bool largest) { return largest ? ncclMax : ncclSum; }

class NcclGroup final : public execute::Communicator {
 public:
  NcclGroup(CudaDevice& device, const std::string& id, int rank, int ranks) : stream_(device.stream()) {
    SHARDSIM_CHECK(ncclCommInitRank(&communicator_, ranks, unique_id_of(id), rank));
  }
  /// After an error, its own or another's, NCCL must not wait for ranks that may be gone.
  ~NcclGroup() override {
    if (communicator_ == nullptr) return;
    if (broken_ || std::uncaught_exceptions() > 0)
      ncclCommAbort(communicator_);
    else
      ncclCommDestroy(communicator_);
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  void begin() override { SHARDSIM_CHECK(ncclGroupStart()); }
  void end() override { SHARDSIM_CHECK(ncclGroupEnd()); }
  void all_reduce(void* buffer, std::size_t count, execute::Wire wire, bool largest) override {
    SHARDSIM_CHECK(ncclAllReduce(buffer, buffer, count, type_of(wire), operation(largest), communicator_, stream_));
  }
  void all_gather(const void* part, void* full, std::size_t part_count, execute::Wire wire) override {
    SHARDSIM_CHECK(ncclAllGather(part, full, part_count, type_of(wire), communicator_, stream_));
  }
  void reduce_scatter(const void* full, void* part, std::size_t part_count, execute::Wire wire, bool largest) override {
    SHARDSIM_CHECK(ncclReduceScatter(full, part, part_count, type_of(wire), operation(largest), communicator_, stream_));
  }
  void broadcast(const void* from, void* to, std::size_t count, execute::Wire wire, int root) override {
    SHARDSIM_CHECK(ncclBroadcast(from, to, count, type_of(wire), root, communicator_, stream_));
  }
  void reduce(const void* from, void* to, std::size_t count, execute::Wire wire, bool largest, int root) override {
    SHARDSIM_CHECK(ncclReduce(from, to, count, type_of(wire), operation(largest), root, communicator_, stream_));
  }
  void send(const void* buffer, std::size_t count, execute::Wire wire, int peer) override {
    SHARDSIM_CHECK(ncclSend(buffer, count, type_of(wire), peer, communicator_, stream_));
  }
  void receive(void* buffer, std::size_t count, execute::Wire wire, int peer) override {
    SHARDSIM_CHECK(ncclRecv(buffer, count, type_of(wire), peer, communicator_, stream_));
  }

  void wait() override {
    try {
      wait_for(stream_, communicator_, std::chrono::microseconds(20));
    } catch (const Failure&) {
      broken_ = true;
      throw;
    }
  }

 private:
  cudaStream_t stream_;
  ncclComm_t communicator_ = nullptr;
  bool broken_ = false;
};

}  // namespace

std::unique_ptr<execute::Communicator> join_group(execute::Device& device, const std::string& id, int rank, int ranks) {
  return std::make_unique<NcclGroup>(dynamic_cast<CudaDevice&>(device), id, rank, ranks);
}

}  // namespace shardsim::gpu
