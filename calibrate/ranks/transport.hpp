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

/// A number that follows from the bytes of a stream, however they are cut: one that arrives changed gives another.
class StreamDigest {
 public:
  void add(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t value() const;

 private:
  std::uint64_t digest_ = 0, rest_ = 0, size_ = 0;  // `rest_`: the bytes of a word that is not full
};

/// What one rank has sent to each other and received from it. Beside the numeric comparison of an execution, which a flipped bit of little
/// weight passes.
class WireDigests {
 public:
  explicit WireDigests(int ranks) : sent_(static_cast<std::size_t>(ranks)), received_(sent_.size()) {}
  void add_sent(int to, std::span<const std::byte> bytes) { add(sent_, to, bytes); }
  void add_received(int from, std::span<const std::byte> bytes) { add(received_, from, bytes); }
  [[nodiscard]] std::vector<std::uint64_t> sent() const { return values(sent_); }
  [[nodiscard]] std::vector<std::uint64_t> received() const { return values(received_); }

 private:
  static void add(std::vector<StreamDigest>& digests, int peer, std::span<const std::byte> bytes) {
    if (!bytes.empty()) digests[static_cast<std::size_t>(peer)].add(bytes);
  }
  static std::vector<std::uint64_t> values(const std::vector<StreamDigest>& digests);
  std::vector<StreamDigest> sent_, received_;  // by peer
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
