// SPDX-License-Identifier: Apache-2.0
// Moving payload between two ranks, and spoiling it on purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace shardsim::execute {

class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  /// Sends `out` to one rank while receiving `in` from another (or the same); either may be empty.
  /// Throws EnvironmentError when a connection breaks or stands still.
  virtual void exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) = 0;
};

/// A test's sabotage: one bit of the `byte`-th payload byte that `rank` sends arrives flipped.
struct WireFault {
  int rank = 0;
  std::int64_t byte = 0;
};

/// Commits a WireFault in the rank that sends.
class Saboteur {
 public:
  Saboteur(int rank, const std::optional<WireFault>& fault) : at_(fault && fault->rank == rank ? fault->byte : -1) {}

  /// `out`, the next bytes to be sent, or what to send in their place. Valid until the next call.
  [[nodiscard]] std::span<const std::byte> next(std::span<const std::byte> out);

 private:
  std::int64_t at_;
  std::int64_t sent_ = 0;
  std::vector<std::byte> tampered_;
};

}  // namespace shardsim::execute
