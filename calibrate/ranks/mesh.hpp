// SPDX-License-Identifier: Apache-2.0
// TCP connections between every two ranks. They carry payload only: who connects to whom is agreed elsewhere, so that what the kernel
// counts on them is what the collectives sent.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/ranks/transport.hpp"
#include "sim/base/units.hpp"

namespace shardsim::execute {

/// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool valid() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

/// Gives the ports that this rank listens on (one for each rank; 0 where it does not) and receives everybody's, by rank.
using Rendezvous = std::function<std::vector<std::vector<int>>(const std::vector<int>& ports)>;

struct MeshOptions {
  std::string address = "127.0.0.1";
  std::vector<std::string> peers{};       ///< address of each rank; empty: all on `address`
  std::vector<std::string> namespaces{};  ///< file of the network namespace that each rank's process enters; empty: none
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds idle_timeout{30'000};  ///< no byte in either direction for so long: the peer is given up
  std::optional<WireFault> fault{};
};

class Mesh final : public Transport {
 public:
  /// Connects `rank` with all others on ephemeral ports. Throws EnvironmentError when that fails or takes too long.
  Mesh(int rank, int ranks, const Rendezvous& rendezvous, const MeshOptions& options = {});

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return static_cast<int>(peers_.size()); }

  void exchange(int to, std::span<const std::byte> out, int from, std::span<std::byte> in) override;

  /// Payload bytes that the kernel has seen acknowledged since the connections were made (TCP_INFO tcpi_bytes_acked), once
  /// everything sent is. Throws EnvironmentError if that does not happen within the idle timeout.
  [[nodiscard]] Bytes acknowledged() const;

 private:
  struct Peer {
    Descriptor socket;
    std::int64_t acknowledged_before = 0;  // the handshake's own SYN counts on the side that connects
  };
  int rank_;
  MeshOptions options_;
  std::vector<Peer> peers_;
  Saboteur saboteur_;
};

}  // namespace shardsim::execute
