// SPDX-License-Identifier: Apache-2.0
// Rings laid onto the graph of a cluster, as NCCL lays them: one channel for each NIC that a group reaches on a node, entering and
// leaving nodes on that NIC's rail, in turns, so that every NIC sends once and receives once. All alike groups run at once.
#pragma once

#include <string>

#include "sim/machine/cluster_graph.hpp"
#include "sim/schedule/schedule.hpp"

namespace shardsim {

/// What the slowest ring of a group reaches, and the link that holds it there. Rates are bus bandwidths: bytes that each rank sends on.
struct RingEmbedding {
  ByteRate inside;  ///< between ranks of a node; zero where each node has one
  std::string inside_link;
  ByteRate across;  ///< between nodes; zero on one node
  std::string across_link;
  Seconds hop;        ///< mean latency of a step that crosses nodes
  ByteRate exchange;  ///< all-to-all across nodes: the send buffer of a rank divided by this is the time; zero on one node,
                      ///< and where nobody asked
};

[[nodiscard]] RingEmbedding embed_rings(const ClusterGraph& graph, const Cluster& cluster, const Group& group, bool exchange = false);

}  // namespace shardsim
