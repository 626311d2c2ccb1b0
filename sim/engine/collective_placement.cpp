// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/collective_placement.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/units_text.hpp"

namespace shardsim {

Placement place(const Group& group, const Cluster& cluster) {
  const std::int64_t per_node = std::max<std::int64_t>(1, cluster.gpus_per_node);
  Placement placement;
  placement.ranks = group.size;
  placement.ranks_per_node = group.stride >= per_node ? 1 : std::min(group.size, ceil_div(per_node, group.stride));
  const std::int64_t extent = (group.size - 1) * group.stride + 1;
  placement.nodes = group.stride >= per_node ? group.size : ceil_div(extent, per_node);
  placement.groups_per_node = ceil_div(per_node, placement.ranks_per_node);
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
  if (placement.nodes == 1) return path;
  // A GPU reaches the NICs beside it only: with one GPU per node in use, seven of eight NICs idle.
  const std::int64_t beside = std::max<std::int64_t>(
      1, std::max<std::int64_t>(cluster.nics_per_node, profile.network.nics_per_node) / std::max(1, profile.node.gpus));
  const std::int64_t in_use = std::min(cluster.nics_per_node, cluster.gpus_per_node * beside);
  path.nics = static_cast<double>(in_use) / static_cast<double>(placement.groups_per_node);
  path.network = path.nic_bandwidth * path.nics;
  return path;
}

ByteRate RingPath::bandwidth() const {
  if (!crosses_nodes()) return intra;
  return uses_fabric() ? std::min(intra, network) : network;
}

std::string RingPath::bottleneck() const {
  if (crosses_nodes() && network == bandwidth())
    return fmt::format("{:g} NIC{} x {}", nics, nics == 1 ? "" : "s", to_text(nic_bandwidth));
  return fmt::format("ring inside the node, {}", to_text(intra));
}

}  // namespace shardsim
