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
#include "sim/base/descriptor.hpp"
#include "sim/base/units.hpp"

namespace shardsim::execute {

/// Gives one port for each rank (0: none) and receives everybody's, by rank. Asked twice: for the ports that ranks listen on, then for
/// those that they connect from, so that a stranger who connects is not taken for a rank.
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
  [[nodiscard]] const WireDigests& digests() const { return digests_; }

 private:
  struct Peer {
    Descriptor socket;
    std::int64_t acknowledged_before = 0;  // the handshake's own SYN counts on the side that connects
  };
  int rank_;
  MeshOptions options_;
  std::vector<Peer> peers_;
  Saboteur saboteur_;
  WireDigests digests_;
};

}  // namespace shardsim::execute
