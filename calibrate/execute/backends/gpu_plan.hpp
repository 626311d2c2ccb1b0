// SPDX-License-Identifier: Apache-2.0
// Which rank runs on which GPU, how their payload travels and who counts it; and what NCCL and the pools are then expected to do.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/schedule/schedule.hpp"

namespace shardsim::execute {

/// network: NCCL over sockets of this machine, every rank a host of its own to NCCL; the profiler plugin counts, to the byte.
/// nvlink: NCCL between GPUs over NVLink; the GPUs' counters count, in KiB and with NCCL's flags. host: through the host, our ring over
/// TCP.
enum class Route : std::uint8_t { network, nvlink, host };
[[nodiscard]] std::string_view name_of(Route route);

/// What was found on the machine.
struct GpuFacts {
  std::string pci_bus_id;
  std::string name;
  int nvlinks = 0;  ///< links whose counters can be read
};

struct GpuPlan {
  std::vector<int> gpu_of_rank;
  Route route = Route::network;
  [[nodiscard]] bool shares() const;  ///< several ranks on one GPU
};

/// Ranks in turn on the GPUs. `wanted`: "auto" (the network: it is counted to the byte and works with any number of GPUs), "network",
/// "nvlink" or "host". Throws EnvironmentError for no GPU, and for NVLink without a GPU with counters for each rank.
[[nodiscard]] GpuPlan plan_gpus(const std::vector<GpuFacts>& gpus, int ranks, std::string_view wanted);

/// Environment variables that NCCL must find when a rank starts it. One ring, one channel and the Simple protocol, so that bytes are those
/// of nccl_sent(). On the network each rank has a host id of its own (NCCL_HOSTID), which also lets several ranks share a GPU.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> nccl_environment(const GpuPlan& plan, int rank);

/// Bytes that member `index` of n sends in one call of NCCL's ring with one channel and the Simple protocol. As our ring's, except that an
/// all-reduce goes in loops of n chunks of at most 2 MiB, the last loop's rounded up to 16 bytes (src/device/all_reduce.h, NCCL 2.28).
[[nodiscard]] Bytes nccl_sent(Collective kind, Elements payload, DType dtype, std::int64_t n, std::int64_t index, std::int64_t root = 0);
/// Of all payload of one step of the schedule.
[[nodiscard]] Bytes nccl_sent(const Schedule& schedule);

/// How far the counters of a route may stand from that: nothing on the network and through the host; on NVLink 1 KiB for each collective
/// and direction, and the flags that NCCL writes beside the data (2 %).
[[nodiscard]] Bytes sent_tolerance(Route route, Bytes predicted, std::int64_t collectives);

/// Most bytes alive at once of buffers of the schedule, each as large as `footprint` says, as a pool counts them.
[[nodiscard]] Bytes pool_high_water(const Schedule& schedule, const std::function<Bytes(Bytes)>& footprint);

}  // namespace shardsim::execute
