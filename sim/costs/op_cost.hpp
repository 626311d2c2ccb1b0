// SPDX-License-Identifier: Apache-2.0
// What one op costs on a machine: where cost models end and the event loop begins.
#pragma once

#include <array>
#include <cstdint>

#include "sim/base/units.hpp"

namespace shardsim {

/// Shared resources of a rank: which share of each an op uses while it runs at full speed.
enum class Resource : std::uint8_t { intra_node, network, host_link };
inline constexpr std::size_t resource_count = 3;

/// What one op costs. Ops that take no device time have a zero duration.
struct OpCost {
  SimTime device;                             ///< on its stream, alone on the machine
  SimTime host;                               ///< time the host needs to issue it
  std::array<float, resource_count> share{};  ///< of the resources, while it runs alone
  bool compute = false;                       ///< slowed down beside collectives
  bool collective = false;
};

}  // namespace shardsim
