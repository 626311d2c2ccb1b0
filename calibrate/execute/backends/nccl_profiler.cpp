// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/backends/nccl_profiler.hpp"

#include <atomic>
#include <cstddef>

namespace shardsim::execute {
namespace {

using nccl::Event;
using nccl::StateArguments;

// What NCCL compiled against: 64-bit ABI of the plugin interface, version 5.
static_assert(sizeof(Event) == 112 && offsetof(Event, parent) == 8 && offsetof(Event, rank) == 16);
static_assert(offsetof(Event, operation.channel) == 28 && offsetof(Event, operation.peer) == 32 &&
              offsetof(Event, operation.is_send) == 44);
static_assert(sizeof(StateArguments) == 8);

// NCCL's proxy threads call in at the same time.
std::atomic<std::int64_t> bytes_sent{0}, blocks_sent{0}, communicators{0};

// Handles: NCCL reports states only of events whose handle is not null, and only the direction matters.
char sending, other;

constexpr int success = 0;

int init(void** context, std::uint64_t, int* events, const char*, int, int, int, void*) {
  *context = nullptr;
  *events = static_cast<int>(nccl::proxy_operation | nccl::proxy_step);
  ++communicators;
  return success;
}

int start(void*, void** handle, Event* event) {
  *handle = &other;
  if (event->type == nccl::proxy_operation && event->operation.is_send != 0) *handle = &sending;
  if (event->type == nccl::proxy_step && event->parent != nullptr) *handle = event->parent;
  return success;
}

int stop(void*) { return success; }

int record(void* handle, int state, StateArguments* arguments) {
  if (handle != &sending || state != nccl::handed_to_network || arguments == nullptr) return success;
  bytes_sent += static_cast<std::int64_t>(arguments->block_bytes);
  ++blocks_sent;
  return success;
}

int finalize(void*) { return success; }

}  // namespace

NcclTraffic nccl_traffic() { return {Bytes{bytes_sent.load()}, blocks_sent.load(), communicators.load()}; }

}  // namespace shardsim::execute

extern "C" {
__attribute__((used)) const shardsim::execute::nccl::ProfilerV5 ncclProfiler_v5{"shardsim",
                                                                                shardsim::execute::init,
                                                                                shardsim::execute::start,
                                                                                shardsim::execute::stop,
                                                                                shardsim::execute::record,
                                                                                shardsim::execute::finalize};
}
