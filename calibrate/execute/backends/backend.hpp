// SPDX-License-Identifier: Apache-2.0
// The border between a Schedule's interpreter and what it runs on. A backend is one rank's device: memory, arithmetic, a stream and
// collectives. A platform starts the ranks and opens the backend of each.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/execute/backends/collectives.hpp"
#include "calibrate/execute/backends/device.hpp"
#include "calibrate/execute/training/math.hpp"
#include "calibrate/ranks/line.hpp"
#include "calibrate/ranks/mesh.hpp"
#include "sim/base/units.hpp"

namespace shardsim::execute {

/// One object in each rank's process. Calls are issued in host order; each may return before it is done, but read() returns what all
/// calls before it have left.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  // Memory. Addresses mean something to the backend only; the host reaches what is there by read() and write().
  /// Zeroed memory; `host`: pinned memory of the host. Throws EnvironmentError when there is none left.
  [[nodiscard]] virtual std::byte* allocate(Bytes size, bool host) = 0;
  virtual void free(std::byte* memory, bool host) = 0;
  virtual void read(std::span<const std::byte> memory, std::span<std::byte> to) = 0;
  virtual void write(std::span<const std::byte> from, std::span<std::byte> memory) = 0;
  virtual void fill(std::span<std::byte> memory, std::byte value) = 0;
  /// The most that this rank has held at once, as something outside this program counted it, and what that is.
  [[nodiscard]] virtual Bytes high_water() const = 0;
  [[nodiscard]] virtual std::string memory_counted_by() const = 0;
  /// Of a device's allocator, where there is one.
  [[nodiscard]] virtual std::optional<PoolUse> pool() const { return std::nullopt; }
  /// What an allocation of so many bytes takes there.
  [[nodiscard]] virtual Bytes footprint(Bytes size) { return size; }

  /// Compute: the trainer's arithmetic, on numbers in the backend's memory.
  [[nodiscard]] virtual Math& math() = 0;

  /// Stream: returns when everything issued is done.
  virtual void synchronize() = 0;

  /// Collectives on payloads in this backend's memory; and on scalars and flags, which lie in the host's.
  [[nodiscard]] virtual Collectives& traffic() = 0;
  [[nodiscard]] virtual Collectives& control() = 0;
};

/// Where the ranks of an execution live.
class Platform {
 public:
  Platform() = default;
  Platform(const Platform&) = delete;
  Platform& operator=(const Platform&) = delete;
  virtual ~Platform() = default;

  /// How many ranks a launcher (mpirun, srun) has started, of which this process is one; nothing where run() starts them itself.
  [[nodiscard]] virtual std::optional<int> launched() const { return std::nullopt; }
  /// Whether this process prints what was found: one of those that were launched does.
  [[nodiscard]] virtual bool reports() const { return true; }
  /// Runs `body` on every rank and returns the text of each, by rank, in every process that called this. If one fails, all end: an
  /// exception of `body` comes back as EnvironmentError (or std::logic_error, if it was one).
  [[nodiscard]] virtual std::vector<std::string> run(int ranks, const RankBody& body) = 0;
  /// Opens what a rank runs on, during run(). All ranks call it together.
  [[nodiscard]] virtual std::unique_ptr<Backend> open(int rank, int ranks, Line& line, const MeshOptions& network) = 0;
  /// Payload that the rank of `schedule` sends in one step with the algorithms of this platform, and how far its counters may stand from
  /// it.
  [[nodiscard]] virtual Bytes predicted_payload(const Schedule& schedule) const;
  [[nodiscard]] virtual Bytes tolerance(Bytes /*predicted*/, std::int64_t /*collectives*/) const { return {}; }
  /// After the last run: throws EnvironmentError if the counters of the whole do not agree with those of its parts.
  virtual void close() {}
};

/// Memory and arithmetic of the host: what backends without a device share.
class HostBackend : public Backend {
 public:
  [[nodiscard]] std::byte* allocate(Bytes size, bool host) override;
  void free(std::byte* memory, bool host) override;
  void read(std::span<const std::byte> memory, std::span<std::byte> to) override;
  void write(std::span<const std::byte> from, std::span<std::byte> memory) override;
  void fill(std::span<std::byte> memory, std::byte value) override;
  [[nodiscard]] Bytes high_water() const override;
  [[nodiscard]] std::string memory_counted_by() const override { return "kernel: VmHWM of the process"; }
  [[nodiscard]] Math& math() override;
  void synchronize() override {}
};

/// N processes of this machine and rings over TCP between them.
class LocalPlatform final : public Platform {
 public:
  [[nodiscard]] std::vector<std::string> run(int ranks, const RankBody& body) override;
  [[nodiscard]] std::unique_ptr<Backend> open(int rank, int ranks, Line& line, const MeshOptions& network) override;
};

/// "local", "mpi" or "cuda"; `transport` is for cuda (see plan_gpus). Throws EnvironmentError if this build or this machine lacks it.
[[nodiscard]] std::unique_ptr<Platform> open_platform(std::string_view name, std::string_view transport = "auto");

}  // namespace shardsim::execute
