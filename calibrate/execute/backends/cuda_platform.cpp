// SPDX-License-Identifier: Apache-2.0
// GPUs of this machine, in builds with CUDA and NCCL.
#include "calibrate/execute/backends/device_backend.hpp"
#include "sim/base/problem.hpp"

#ifdef SHARDSIM_GPU

#include "calibrate/execute/backends/nccl_profiler.hpp"
#include "calibrate/execute/backends/nvlink.hpp"
#include "calibrate/gpu/gpu_device.hpp"

namespace shardsim::execute {
namespace {

/// One if the driver counts what the links carry: then all of them are in the sum.
int countable_links(const std::string& bus_id) {
  const auto library = NvlinkCounter::driver();
  return library && NvlinkCounter(*library, bus_id).sent() ? 1 : 0;
}

std::vector<GpuFacts> find_gpus() {
  std::vector<GpuFacts> gpus;
  for (int i = 0; i < gpu::device_count(); ++i) {
    const std::string bus_id = gpu::pci_bus_id(i);
    gpus.push_back({bus_id, gpu::describe_device(i).name, countable_links(bus_id)});
  }
  return gpus;
}

ByteCounter network_counter() {
  const auto read = [] {
    const NcclTraffic traffic = nccl_traffic();
    if (traffic.communicators == 0)
      throw EnvironmentError("NCCL " + gpu::nccl_version() +
                             " did not load the profiler plugin of this program (ncclProfiler_v5): it needs 2.28 or newer");
    return traffic.sent;
  };
  return {read, "NCCL " + gpu::nccl_version() + ": profiler plugin, bytes given to the network transport"};
}

ByteCounter nvlink_counter(const GpuFacts& gpu) {
  const auto library = NvlinkCounter::driver();
  if (!library) throw EnvironmentError("the driver's NVML (libnvidia-ml.so.1) cannot be opened");
  const NvlinkCounter counter(*library, gpu.pci_bus_id);
  const auto now = [counter] {
    const auto sent = counter.sent();
    if (!sent) throw EnvironmentError("the NVLink counters cannot be read");
    return *sent;
  };
  return {[now, before = now()] { return now() - before; }, "NVML: NVLink counters of the GPU, payload sent in KiB"};
}

}  // namespace

std::unique_ptr<Platform> open_cuda_platform(std::string_view transport) {
  DeviceMaker maker;
  maker.find = find_gpus;
  maker.open = gpu::open_device;
  maker.make_id = gpu::make_unique_id;
  maker.join = gpu::join_group;
  maker.counter = [](Route route, const GpuFacts& gpu) { return route == Route::nvlink ? nvlink_counter(gpu) : network_counter(); };
  return std::make_unique<DevicePlatform>(std::move(maker), std::string(transport));
}

}  // namespace shardsim::execute

#else

namespace shardsim::execute {

std::unique_ptr<Platform> open_cuda_platform(std::string_view) {
  throw EnvironmentError(
      "execute --backend cuda: this build runs on no GPU, because it was made without CUDA; on a machine with the CUDA toolkit and NCCL, "
      "build it "
      "with `cmake --preset cuda && cmake --build --preset cuda --target shardsim`");
}

}  // namespace shardsim::execute

#endif
