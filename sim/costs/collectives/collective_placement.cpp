// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/collective_placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/units_text.hpp"
#include "sim/costs/collectives/nccl_system.hpp"
#include "sim/costs/collectives/ring_embedding.hpp"
#include "sim/machine/cluster_graph.hpp"

namespace shardsim {

Placement place(const Group& group, const Cluster& cluster) {
  const std::int64_t per_node = std::max<std::int64_t>(1, cluster.gpus_per_node);
  Placement placement;
  placement.ranks = group.size;
  placement.ranks_per_node = group.stride >= per_node ? 1 : std::min(group.size, ceil_div(per_node, group.stride));
  const std::int64_t extent = (group.size - 1) * group.stride + 1;
  placement.nodes = group.stride >= per_node ? group.size : ceil_div(extent, per_node);
  placement.groups_per_node = ceil_div(per_node, placement.ranks_per_node);
  placement.nodes_per_island = std::max<std::int64_t>(1, cluster.profile.node.nvlink_nodes);
  return placement;
}

RingPath ring_path(const Placement& placement, const Cluster& cluster) {
  const Profile& profile = cluster.profile;
  RingPath path;
  path.placement = placement;
  path.intra = profile.node.ring_bandwidth;
  path.base_latency = profile.network.base_latency;
  path.intra_latency = profile.node.intra_latency;
  path.inter_latency = profile.network.inter_latency;
  path.nic_bandwidth = profile.network.nic_bandwidth * profile.network.efficiency;
  path.nccl = nccl_machine(profile, path.intra);
  if (!path.crosses_nodes()) return path;
  const std::int64_t nodes = std::min(placement.nodes, placement.nodes_per_island);  // whose NICs an island has
  path.nics = static_cast<double>(nics_in_use(cluster) * nodes) / static_cast<double>(placement.groups_per_node);
  path.network = path.nic_bandwidth * path.nics;
  return path;
}

ByteRate RingPath::bandwidth() const {
  if (!crosses_nodes()) return intra;
  return uses_fabric() ? std::min(intra, network) : network;
}

bool RingPath::alike(const RingPath& other) const {
  const auto near = [](ByteRate a, ByteRate b) { return std::abs(a.base() - b.base()) <= 1e-6 * std::max(a.base(), b.base()); };
  return near(intra, other.intra) && near(network, other.network) && near(exchange, other.exchange) && base_latency == other.base_latency &&
         intra_latency == other.intra_latency && inter_latency == other.inter_latency;
}

std::string RingPath::bottleneck() const {
  if (!crosses_nodes() || network != bandwidth()) return fmt::format("ring inside the node, {}", to_text(intra));
  if (network < nic_bandwidth * nics * (1 - 1e-9)) return fmt::format("{}, {} for a ring", across_link, to_text(network));
  if (nics < 1) return fmt::format("{:.3g} of a NIC of {}", nics, to_text(nic_bandwidth));  // rings beside each other share it
  return fmt::format("{:g} NIC{} x {}", nics, nics == 1 ? "" : "s", to_text(nic_bandwidth));
}

const std::string& RingPath::bottleneck_link() const { return crosses_nodes() && network == bandwidth() ? across_link : inside_link; }

namespace {

ClusterGraph expanded(const Cluster& cluster) {
  auto graph = ClusterGraph::expand(cluster);
  if (!graph) throw InputError("cluster.topology: " + graph.error());
  return *std::move(graph);
}

}  // namespace

RingPath ring_path(const Group& group, const Cluster& cluster, bool exchange) {
  RingPath path = ring_path(place(group, cluster), cluster);
  if (path.placement.ranks <= 1) return path;
  if (!cluster.profile.topology) {
    // Every node and every NIC is like the next, and the sums are what the graph would give: a test holds the two together.
    if (path.uses_fabric()) path.inside_link = "node0.gpu0 to node0.nvswitch0";
    if (path.crosses_nodes()) path.across_link = "node0.nic0 to leaf0";
    return path;
  }
  const RingEmbedding rings = embed_rings(expanded(cluster), cluster, group, exchange);
  path.inside_link = rings.inside_link;
  path.across_link = rings.across_link;
  const auto lower = [](ByteRate closed, ByteRate embedded) {
    return embedded > ByteRate{} && embedded < closed * (1 - 1e-9) ? embedded : closed;
  };
  path.intra = lower(path.intra, rings.inside);
  path.network = lower(path.network, rings.across);
  path.exchange = rings.exchange;
  path.inter_latency = std::max(path.inter_latency, rings.hop);
  return path;
}

}  // namespace shardsim
