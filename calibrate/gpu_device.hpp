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
[[nodiscard]] double kernel_gap_seconds();                               ///< a kernel that does nothing, behind another
[[nodiscard]] double product_seconds(int m, int n, int k);               ///< bf16 with fp32 accumulation, median
[[nodiscard]] double copy_bytes_per_second(std::size_t bytes);           ///< on the device, read and written
[[nodiscard]] double host_link_bytes_per_second(std::size_t bytes);      ///< pinned, the slower direction

/// One measurement of NCCL between all devices of this process.
struct CollectiveTiming {
  int collective = 0;                                                    ///< index into all_collectives
  long long bytes = 0;                                                   ///< the full buffer
  double seconds = 0;
};
/// Rounds are interleaved over sizes. `kinds`: indices into all_collectives, of all-reduce, all-gather, reduce-scatter and broadcast.
[[nodiscard]] std::vector<CollectiveTiming> nccl_timings(const std::vector<int>& kinds, const std::vector<long long>& sizes, int rounds);
[[nodiscard]] std::string nccl_version();

// Real execution (calibrate/execute/device.hpp).
[[nodiscard]] std::unique_ptr<execute::Device> open_device(int index);
[[nodiscard]] std::string pci_bus_id(int index);                         ///< "00000000:0A:00.0"
[[nodiscard]] std::string make_unique_id();
[[nodiscard]] std::unique_ptr<execute::Communicator> join_group(execute::Device& device, const std::string& id, int rank, int ranks);

}  // namespace shardsim::gpu
