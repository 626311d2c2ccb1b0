// SPDX-License-Identifier: Apache-2.0
// The constants of NCCL's time model: latencies and bandwidth limits of each algorithm and protocol.
// SOURCE: NCCL 2.30.7, src/graph/tuning.cc.
#pragma once

#include <cstdint>
#include <string_view>

#include "sim/base/units.hpp"

namespace shardsim {

enum class NcclGeneration : std::uint8_t { volta, ampere, hopper, blackwell };
enum class NcclAlgorithm : std::uint8_t { tree, ring, nvls, nvls_tree };
enum class NcclProtocol : std::uint8_t { ll, ll128, simple };

[[nodiscard]] std::string_view name_of(NcclAlgorithm algorithm);
[[nodiscard]] std::string_view name_of(NcclProtocol protocol);

/// Share of a ring's bandwidth that NVLS reaches.
[[nodiscard]] double nvls_efficiency(NcclGeneration generation);

namespace nccl {

// Latencies in microseconds: once per collective, per hop inside a node, and on the network.
[[nodiscard]] double base_latency(NcclAlgorithm algorithm, NcclProtocol protocol);
[[nodiscard]] double hop_latency(NcclAlgorithm algorithm, NcclProtocol protocol, bool nvlink);
[[nodiscard]] double net_latency(NcclAlgorithm algorithm, NcclProtocol protocol);

// Limits in GB/s of bus bandwidth. `nodes` picks the column: one node, two, more.
[[nodiscard]] double ll_limit(NcclGeneration generation, std::int64_t nodes);
[[nodiscard]] double ll128_ring_channel(NcclGeneration generation);
[[nodiscard]] double ll128_tree_channel(NcclGeneration generation, std::int64_t nodes);
[[nodiscard]] double tree_channel(NcclGeneration generation, std::int64_t nodes);
[[nodiscard]] double nvls_tree_channel(NcclGeneration generation, std::int64_t nodes);

/// What protocols leave of a bandwidth: LL sends a flag with every 4 bytes, LL128 one with every 120.
inline constexpr double ll_share = 0.5, ll128_share = 120.0 / 128;
inline constexpr double ring_ll128_share = 0.92;  ///< of a ring's bandwidth inside a node
inline constexpr double tree_share = 0.92, tree_ll_divisor = 3.8, tree_ll128_one_node = 7.0 / 9;
/// Ring, Simple, all-reduce on several nodes: the latency's factor from 64 bytes for each channel and rank up.
inline constexpr double ring_plateau = 1.4, ring_plateau_volta = 1.9;

/// The tree's efficiency for sizes of 64 B << i, as the tuner applies it: a step for each power of two.
[[nodiscard]] double tree_correction(NcclProtocol protocol, Bytes payload);
/// The same factors with a power of the size in between: a time made of them never falls where the payload grows.
[[nodiscard]] double smooth_tree_correction(NcclProtocol protocol, Bytes payload);

}  // namespace nccl
}  // namespace shardsim
