// SPDX-License-Identifier: Apache-2.0
// The border between the host's code and what nvcc compiles: plain numbers in seconds and bytes per second.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace shardsim::execute {
class Communicator;
class Device;
}  // namespace shardsim::execute

namespace shardsim::gpu {

struct Device {
  std::string name;
  long long memory = 0;
  int multiprocessors = 0;
};

[[nodiscard]] int device_count();
[[nodiscard]] Device describe_device(int index = 0);
struct LaunchCost {
  double host_issue = 0;  ///< seconds the host takes to issue a kernel, without any framework
  double device_gap = 0;  ///< seconds of a kernel that does nothing, behind another
};
[[nodiscard]] LaunchCost launch_cost();
[[nodiscard]] double product_seconds(int m, int n, int k);      ///< bf16 with fp32 accumulation, median
[[nodiscard]] double copy_bytes_per_second(std::size_t bytes);  ///< on the device, read and written
struct HostLink {
  double up = 0, down = 0;
};  ///< bytes per second, pinned memory: to the device and back
[[nodiscard]] HostLink host_link(std::size_t bytes);
/// Bytes read and written per second by kernels on buffers of `bytes`.
struct KernelRates {
  double add = 0, norm = 0, adamw = 0;
};
[[nodiscard]] KernelRates kernel_rates(std::size_t bytes);
/// Causal attention in pieces, forward: two batched products in bf16 and a softmax, on `maps` (sequences times heads).
[[nodiscard]] double attention_seconds(int maps, int tokens, int head_dim);
/// Products on device 0 with all-reduces of GPUs 0 ... devices - 1 beside them: how much longer they take than alone, less one.
[[nodiscard]] double overlap_slowdown(int devices);

/// Ranks of one group that time NCCL's collectives together.
class CollectiveTimer {
 public:
  virtual ~CollectiveTimer() = default;
  /// Seconds of one of `calls` in a row, as this process sees them; bf16. `kind`: index into all_collectives of all-reduce, all-gather,
  /// reduce-scatter or broadcast; `bytes`: of the full buffer, a multiple of two bytes for each rank. All ranks of the group call it.
  virtual double seconds(int kind, long long bytes, int calls) = 0;
};
/// GPUs 0 ... count - 1 of this process; or one GPU of each of `ranks` processes, which hold `id`. `largest`: bytes of the longest call.
[[nodiscard]] std::unique_ptr<CollectiveTimer> time_devices(int count, long long largest);
[[nodiscard]] std::unique_ptr<CollectiveTimer> time_rank(int device, const std::string& id, int rank, int ranks, long long largest);
[[nodiscard]] std::string nccl_version();

// Real execution (calibrate/execute/backends/device.hpp).
[[nodiscard]] std::unique_ptr<execute::Device> open_device(int index);
[[nodiscard]] std::string pci_bus_id(int index);  ///< "00000000:0A:00.0"
[[nodiscard]] std::string make_unique_id();
[[nodiscard]] std::unique_ptr<execute::Communicator> join_group(execute::Device& device, const std::string& id, int rank, int ranks);

}  // namespace shardsim::gpu
