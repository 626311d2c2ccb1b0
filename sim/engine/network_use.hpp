// SPDX-License-Identifier: Apache-2.0
// Which of the bytes that ranks send stay inside their node, and what crosses between nodes: for those who build the network.
#pragma once

#include "sim/engine/result.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

/// Fills the node's and the NIC's figures of `traffic`, whose rows are known, from a replay that lasts `timeline.end`.
void add_network_use(const Schedule& schedule, const Cluster& cluster, const Timeline& timeline, Traffic& traffic);

}  // namespace shardsim
