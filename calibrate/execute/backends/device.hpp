// SPDX-License-Identifier: Apache-2.0
// A GPU as one rank uses it. nvcc reads this header: keep it light.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "calibrate/execute/training/math.hpp"

namespace shardsim::execute {

/// What the device's allocator says of the pool that buffers come from.
struct PoolUse {
  std::size_t used_high = 0;      ///< most bytes in use at once since the pool was made, each allocation rounded up as the device does
  std::size_t reserved_high = 0;  ///< most bytes that the pool held of the device
  std::size_t granularity = 1;    ///< what an allocation of one byte takes
  std::size_t device_free = 0, device_total = 0;  ///< of the whole device, all processes included (cudaMemGetInfo)
};

class Device {
 public:
  virtual ~Device() = default;
  /// Memory of the pool, zeroed; null if there is none left.
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes) = 0;
  virtual void free(std::byte* memory) = 0;
  virtual void fill(std::byte* memory, std::size_t bytes, unsigned char value) = 0;
  virtual void upload(const std::byte* host, std::byte* memory, std::size_t bytes) = 0;
  virtual void download(const std::byte* memory, std::byte* host, std::size_t bytes) = 0;
  [[nodiscard]] virtual Math& math() = 0;
  [[nodiscard]] virtual PoolUse pool() = 0;
  /// What an allocation of so many bytes takes of a pool.
  [[nodiscard]] virtual std::size_t footprint(std::size_t bytes) = 0;
  /// Until everything asked for so far is done.
  virtual void wait() = 0;
};

/// Opens GPU number `index` of this machine, in the process that will use it.
using OpenDevice = std::function<std::unique_ptr<Device>(int index)>;

/// Element formats that collectives on the device know.
enum class Wire : std::uint8_t { bf16, fp32 };

/// Ranks that talk through a communication library (NCCL), each with a device. Pointers are the device's, counts are elements.
/// Calls are queued behind the device's earlier work; between begin() and end() they are one operation of the library.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual void begin() = 0;
  virtual void end() = 0;
  virtual void all_reduce(void* buffer, std::size_t count, Wire wire, bool largest) = 0;
  /// `part` may be the own part of `full`.
  virtual void all_gather(const void* part, void* full, std::size_t part_count, Wire wire) = 0;
  virtual void reduce_scatter(const void* full, void* part, std::size_t part_count, Wire wire, bool largest) = 0;
  virtual void broadcast(const void* from, void* to, std::size_t count, Wire wire, int root) = 0;
  virtual void reduce(const void* from, void* to, std::size_t count, Wire wire, bool largest, int root) = 0;
  virtual void send(const void* buffer, std::size_t count, Wire wire, int peer) = 0;
  virtual void receive(void* buffer, std::size_t count, Wire wire, int peer) = 0;
  /// Until everything asked for is done, or the library reports an error of another rank.
  virtual void wait() = 0;
};

/// What ranks need to become a group: made by one of them, told to the others.
using MakeUniqueId = std::function<std::string()>;
/// Joins the group of `id` as `rank` of `ranks`; all members call it at the same time.
using JoinGroup = std::function<std::unique_ptr<Communicator>(Device& device, const std::string& id, int rank, int ranks)>;

}  // namespace shardsim::execute
