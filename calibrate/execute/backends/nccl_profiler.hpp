// SPDX-License-Identifier: Apache-2.0
// The profiler plugin that lives in this program: NCCL calls it for every block that it hands to its network transport, and it adds up the
// blocks' bytes. With NCCL_PROFILER_PLUGIN=STATIC_PLUGIN NCCL looks for `ncclProfiler_v5` in the executable itself (NCCL 2.28 and newer;
// the symbol must be exported). No header of NCCL is needed: its layout is declared here, from the published plugin interface.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/base/units.hpp"

namespace shardsim::execute {

/// What the network transport of this process was given.
struct NcclTraffic {
  Bytes sent;
  std::int64_t blocks = 0;         ///< sends
  std::int64_t communicators = 0;  ///< that loaded the plugin; 0: NCCL never did
};
[[nodiscard]] NcclTraffic nccl_traffic();

namespace nccl {

// Events are bits, states are numbers (profiler interface, version 5).
inline constexpr std::uint64_t proxy_operation = 1u << 3, proxy_step = 1u << 4;
inline constexpr int handed_to_network = 9;  ///< ProxyStepSendWait: recorded once a block, with its size

struct Event {
  std::uint64_t type;
  void* parent;  ///< of a step: the handle of its operation
  int rank;
  union {
    struct {
      std::int32_t process;
      std::uint8_t channel;
      int peer, steps, chunk_size, is_send;
    } operation;
    alignas(8) std::byte room[88];
  };
};

union StateArguments {
  std::size_t block_bytes;
  std::byte room[8];
};

struct ProfilerV5 {
  const char* name;
  int (*init)(void** context, std::uint64_t communicator, int* events, const char* name, int nodes, int ranks, int rank, void* logger);
  int (*start)(void* context, void** handle, Event* event);
  int (*stop)(void* handle);
  int (*record)(void* handle, int state, StateArguments* arguments);
  int (*finalize)(void* context);
};

}  // namespace nccl
}  // namespace shardsim::execute

extern "C" {
/// Found by NCCL under this name.
extern const shardsim::execute::nccl::ProfilerV5 ncclProfiler_v5;
}
