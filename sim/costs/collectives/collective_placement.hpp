// SPDX-License-Identifier: Apache-2.0
// Where the ranks of a group stand on the nodes, and what of the machine one of its rings may use.
#pragma once

#include <optional>
#include <string>

#include "sim/costs/collectives/nccl_tables.hpp"
#include "sim/machine/profile.hpp"
#include "sim/schedule/schedule.hpp"

namespace shardsim {

/// Ranks are numbered node by node. Groups tile the world, so alike groups run beside each other and share the NICs of a node.
struct Placement {
  std::int64_t ranks = 1;             ///< of one group
  std::int64_t nodes = 1;             ///< that one group touches
  std::int64_t ranks_per_node = 1;    ///< of one group on one node (the most)
  std::int64_t groups_per_node = 1;   ///< groups with members on one node
  std::int64_t nodes_per_island = 1;  ///< that one NVLink domain joins: 18 in a rack of GB200 NVL72

  /// Parts of the group that NVLink does not join: nodes, or NVLink domains where those are larger.
  [[nodiscard]] std::int64_t islands() const { return (nodes + nodes_per_island - 1) / nodes_per_island; }
  [[nodiscard]] std::int64_t ranks_per_island() const { return std::min(ranks, ranks_per_node * nodes_per_island); }
  auto operator<=>(const Placement&) const = default;
};

[[nodiscard]] Placement place(const Group& group, const Cluster& cluster);

/// What NCCL's time model asks of a machine.
struct NcclMachine {
  NcclGeneration generation = NcclGeneration::ampere;
  std::int64_t channels = 12;
  bool nvlink = true;
  auto operator<=>(const NcclMachine&) const = default;
};

/// What one ring of a group has for itself while all alike groups run.
struct RingPath {
  Placement placement;
  ByteRate intra;                        ///< bus bandwidth of a ring inside a node
  ByteRate network;                      ///< the ring's share of a node's NICs, one direction; zero on one node
  double nics = 0;                       ///< that this share is made of
  ByteRate nic_bandwidth;                ///< of one NIC, efficiency included
  Seconds base_latency;                  ///< once per collective
  Seconds intra_latency;                 ///< per step inside a node
  Seconds inter_latency;                 ///< per step that crosses nodes
  ByteRate exchange;                     ///< all-to-all: bound of the network by the graph; zero: not bound beyond the NICs
  std::optional<NcclMachine> nccl;       ///< nothing on a machine whose collectives are not NCCL's (ranks of one CPU)
  std::string inside_link, across_link;  ///< of the graph: the busiest inside a node and between nodes; empty: not looked up

  [[nodiscard]] bool crosses_nodes() const { return placement.islands() > 1; }
  [[nodiscard]] bool uses_fabric() const { return placement.ranks_per_island() > 1; }
  /// The same bandwidths and latencies: a time taken on one holds on the other.
  [[nodiscard]] bool alike(const RingPath& other) const;
  /// Every ring leaves each node once, so the slower of fabric and NIC share bounds it: not one NIC, their sum.
  [[nodiscard]] ByteRate bandwidth() const;
  /// "8 NICs x 50.0 GB/s" or "ring inside the node, 367 GB/s"; "leaf0 to spine0, 100 GB/s for a ring" where the network is the bound.
  [[nodiscard]] std::string bottleneck() const;
  /// "node0.nic0 to leaf0": the link of the graph that holds the ring back.
  [[nodiscard]] const std::string& bottleneck_link() const;
};

/// By the sums of a symmetric cluster: what a node's GPUs and NICs allow.
[[nodiscard]] RingPath ring_path(const Placement& placement, const Cluster& cluster);
/// The same with the group's rings embedded on the graph: bottleneck links by name and, where the cluster has a topology, its limits.
/// `exchange`: the bound of an all-to-all too, which takes longer.
[[nodiscard]] RingPath ring_path(const Group& group, const Cluster& cluster, bool exchange = false);

}  // namespace shardsim
