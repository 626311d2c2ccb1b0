// SPDX-License-Identifier: Apache-2.0
// The machine of a scenario: a profile, how much of it is used, and values of the profile that the scenario knows better.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "scenarios/reader/profile_file.hpp"
#include "scenarios/reader/reading.hpp"
#include "sim/machine/cluster_graph.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t largest_world = std::int64_t{1} << 24;

/// Profile keys that a scenario may write without their section. A section written as a map may override any other value.
struct ShortKey {
  std::string_view name, section;
};
constexpr std::array<ShortKey, 34> short_keys{{{"capacity", "gpu"},
                                               {"memory_bandwidth", "gpu"},
                                               {"multiprocessors", "gpu"},
                                               {"peak", "gpu"},
                                               {"gemm", "gpu"},
                                               {"attention_efficiency", "gpu"},
                                               {"attention_backward_efficiency", "gpu"},
                                               {"elementwise_efficiency", "gpu"},
                                               {"attention", "gpu"},
                                               {"gemm_fp8", "gpu"},
                                               {"optimizer_efficiency", "gpu"},
                                               {"host_speed", "node"},
                                               {"driver_allocation", "overheads"},
                                               {"kernel_launch", "gpu"},
                                               {"collective_launch", "gpu"},
                                               {"device_kernel_gap", "gpu"},
                                               {"overlap_slowdown", "gpu"},
                                               {"host_link", "gpu"},
                                               {"ring_bandwidth", "node"},
                                               {"intra_latency", "node"},
                                               {"host_memory", "node"},
                                               {"host_memory_bandwidth", "node"},
                                               {"nvlink_nodes", "node"},
                                               {"nic_bandwidth", "network"},
                                               {"efficiency", "network"},
                                               {"inter_latency", "network"},
                                               {"base_latency", "network"},
                                               {"all_reduce_algorithm", "network"},
                                               {"ring_model", "network"},
                                               {"context", "overheads"},
                                               {"nccl_per_communicator", "overheads"},
                                               {"cublas_workspace", "overheads"},
                                               {"write_per_node", "storage"},
                                               {"read_per_node", "storage"}}};
constexpr std::array<std::string_view, 9> sections{
    "gpu", "node", "spread", "network", "overheads", "topology", "storage", "price_per_gpu_hour", "collectives"};

/// The profile's tree with the overrides of the cluster block in it.
ConfigNode overridden(ConfigNode profile, MapReader& cluster, std::vector<std::string>& changed) {
  for (const std::string_view section : sections)
    if (const ConfigNode* value = cluster.find(section)) merge_entry(profile, {std::string(section), value->where, *value}, "", changed);
  for (const auto& [name, section] : short_keys)
    if (const ConfigNode* value = cluster.find(name)) {
      ConfigNode part = empty_map(value->where);
      part.entries.push_back({std::string(name), value->where, *value});
      merge_entry(profile, {std::string(section), value->where, std::move(part)}, "", changed);
    }
  return profile;
}

/// Latency and efficiency of a network by its name ("efa"): a file of the shipped fabrics, or one that is named by its path.
void take_fabric(ConfigNode& profile, MapReader& cluster, const std::string& folder, std::vector<std::string>& changed) {
  const ConfigNode* name = cluster.find("fabric");
  if (!name) return;
  ConfigNode file = *name;
  if (file.text.find_first_of("/.") == std::string::npos) file.text = "fabrics/" + file.text + ".yaml";
  const auto tree = read_named_file(file, folder, FileFormat::yaml, cluster.problems());
  if (!tree) return;
  MapReader fabric(*tree, cluster.problems(), "fabric");
  for (const char* key : {"name", "description"}) static_cast<void>(fabric.find(key));
  std::vector<std::string> origins;
  if (const ConfigNode* network = fabric.find("network")) merge_entry(profile, {"network", network->where, *network}, "", changed);
  if (const ConfigNode* from = fabric.find("origins")) merge_entry(profile, {"origins", from->where, *from}, "", origins);
  fabric.finish();
}

bool same_fabric(const NodeShape& a, const NodeShape& b) {
  return a.ring_bandwidth == b.ring_bandwidth && a.intra_latency == b.intra_latency && a.nvlink_nodes == b.nvlink_nodes;
}

/// Measured collectives keep what they taught of latency and efficiency where a scenario puts other rates in place of those that they
/// were measured on: the links as the profile describes them go with them. An override equal to what is there changes nothing.
void keep_measured_links(const ConfigNode& tree, const std::vector<std::string>& changed, Profile& profile,
                         std::vector<std::string>& warnings) {
  if (profile.collectives.empty() || std::ranges::find(changed, "collectives") != changed.end()) return;
  const auto before = read_profile(tree);
  if (!before) return;
  const auto same = [&](const Profile& other) {
    Network network = other.network;  // which algorithm runs is not a property of the links
    network.all_reduce_algorithm = profile.network.all_reduce_algorithm;
    network.ring_model = profile.network.ring_model;
    return same_fabric(other.node, profile.node) && network == profile.network && other.topology == profile.topology;
  };
  if (same(*before)) return;
  profile.measured_on = MeasuredOn{before->node, before->network, before->topology};
  const bool several = std::ranges::any_of(profile.collectives, [](const CollectiveFit& fit) { return fit.nodes > 1; });
  const bool inside = !same_fabric(profile.node, before->node);
  if (several || inside)
    warnings.push_back(
        "the scenario changes the links that the profile's collectives were measured on: measured latency and efficiency are carried over");
}

Profile read_overridden_profile(MapReader& cluster, const std::string& folder, std::vector<std::string>& warnings) {
  Problems& problems = cluster.problems();
  const ConfigNode* name = cluster.require("profile");
  const auto tree = name ? read_profile_file(*name, folder, problems) : std::nullopt;
  std::vector<std::string> from_fabric, changed;
  ConfigNode with_fabric = tree ? tree->root : ConfigNode{};
  take_fabric(with_fabric, cluster, folder, from_fabric);
  const ConfigNode root = overridden(std::move(with_fabric), cluster, changed);  // marks the keys as known in any case
  if (!tree) return {};
  auto profile = read_profile(root);
  if (!profile) {
    append_at(problems, profile.error(), name->where);
    return {};
  }
  for (const std::string& key : changed) profile->origins[key] = "set by the scenario";
  drop_outdated_fits(*profile, tree->changed);
  if (!changed.empty() || !from_fabric.empty()) keep_measured_links(tree->root, changed, *profile, warnings);
  return std::move(*profile);
}

/// The devices that a topology names must be there and be joined.
void check_topology(const Cluster& cluster, const ConfigNode& block, Problems& problems) {
  const auto graph = ClusterGraph::expand(cluster);
  if (graph) return;
  const ConfigNode* topology = block.find("topology");
  problems.add(topology ? topology->where : block.find("profile")->where, "topology: " + graph.error());
}

}  // namespace

Cluster read_cluster(const ConfigNode& block, const std::string& folder, Problems& problems, std::vector<std::string>& warnings) {
  Cluster cluster;
  MapReader reader(block, problems, "cluster");
  const std::size_t before = problems.size();
  cluster.profile = read_overridden_profile(reader, folder, warnings);
  const bool known = problems.size() == before;  // without a profile its limits are not known either
  const std::int64_t gpus = known ? cluster.profile.node.gpus : largest_world;
  cluster.nodes = reader.integer("nodes", 1, 1, largest_world);
  cluster.gpus_per_node = reader.integer("gpus_per_node", known ? gpus : 1, 1, gpus);
  // The GPUs in use reach the NICs beside them: one each on most nodes, four each on a p5 with 32.
  const std::int64_t beside = std::max(1, cluster.profile.network.nics_per_node / std::max(1, cluster.profile.node.gpus));
  const std::int64_t nics = std::min<std::int64_t>(cluster.profile.network.nics_per_node, cluster.gpus_per_node * beside);
  cluster.nics_per_node = reader.integer("nics_per_node", std::max<std::int64_t>(1, nics), 1, 1024);
  const ConfigNode* differences = reader.find("differences");
  reader.finish();
  if (cluster.world_size() > largest_world) {
    const ConfigNode* nodes = block.find("nodes");
    problems.add(nodes ? nodes->where : block.where,
                 fmt::format("a world size of {} is above the limit of {}", cluster.world_size(), largest_world));
  }
  if (known && cluster.profile.topology && problems.size() == before) check_topology(cluster, block, problems);
  if (differences && known && problems.size() == before) {
    cluster.states = read_differences(*differences, cluster, folder, problems);
    // A spread that was drawn for each rank takes the place of the profile's, which counts the slowest of many.
    for (const ConfigNode& entry : differences->items)
      if (entry.find("spread") != nullptr) cluster.profile.spread = {};
  }
  return cluster;
}

}  // namespace shardsim
