// SPDX-License-Identifier: Apache-2.0
// The machine of a scenario: a profile, how much of it is used, and values of the profile that the scenario knows better.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "scenarios/reader/reading.hpp"
#include "sim/machine/cluster_graph.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t largest_world = std::int64_t{1} << 24;

/// Profile keys that a scenario may write without their section. A section written as a map may override any other value.
struct ShortKey {
  std::string_view name, section;
};
constexpr std::array<ShortKey, 29> short_keys{{{"capacity", "gpu"},
                                               {"memory_bandwidth", "gpu"},
                                               {"multiprocessors", "gpu"},
                                               {"peak", "gpu"},
                                               {"gemm", "gpu"},
                                               {"attention_efficiency", "gpu"},
                                               {"attention_backward_efficiency", "gpu"},
                                               {"elementwise_efficiency", "gpu"},
                                               {"sustained_efficiency", "gpu"},
                                               {"kernel_launch", "gpu"},
                                               {"collective_launch", "gpu"},
                                               {"device_kernel_gap", "gpu"},
                                               {"overlap_slowdown", "gpu"},
                                               {"host_link", "gpu"},
                                               {"ring_bandwidth", "node"},
                                               {"intra_latency", "node"},
                                               {"host_memory", "node"},
                                               {"host_memory_bandwidth", "node"},
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
constexpr std::array<std::string_view, 8> sections{
    "gpu", "node", "network", "overheads", "topology", "storage", "price_per_gpu_hour", "collectives"};

ConfigNode empty_map(const Where& where) {
  ConfigNode map;
  map.kind = ConfigNode::Kind::map;
  map.where = where;
  return map;
}

Entry& entry_of(ConfigNode& map, const Entry& like) {
  const auto found = std::find_if(map.entries.begin(), map.entries.end(), [&](const Entry& entry) { return entry.key == like.key; });
  if (found != map.entries.end()) return *found;
  ConfigNode empty;
  empty.where = like.value.where;
  map.entries.push_back({like.key, like.where, std::move(empty)});
  return map.entries.back();
}

/// Puts an entry into a map: maps merge, anything else is replaced. `changed` collects the dotted keys of what was replaced.
void merge(ConfigNode& map, const Entry& override, const std::string& path, std::vector<std::string>& changed) {
  map.kind = ConfigNode::Kind::map;
  Entry& entry = entry_of(map, override);
  entry.where = override.where;
  const std::string key = path.empty() ? override.key : path + "." + override.key;
  if (override.value.kind == ConfigNode::Kind::map) {
    if (entry.value.kind != ConfigNode::Kind::map) entry.value = empty_map(override.value.where);
    for (const Entry& inner : override.value.entries) merge(entry.value, inner, key, changed);
  } else {
    entry.value = override.value;
    changed.push_back(key);
  }
}

/// The profile's tree with the overrides of the cluster block in it.
ConfigNode overridden(ConfigNode profile, MapReader& cluster, std::vector<std::string>& changed) {
  for (const std::string_view section : sections)
    if (const ConfigNode* value = cluster.find(section)) merge(profile, {std::string(section), value->where, *value}, "", changed);
  for (const auto& [name, section] : short_keys)
    if (const ConfigNode* value = cluster.find(name)) {
      ConfigNode part = empty_map(value->where);
      part.entries.push_back({std::string(name), value->where, *value});
      merge(profile, {std::string(section), value->where, std::move(part)}, "", changed);
    }
  return profile;
}

/// A measured collective says nothing about a network that the scenario replaces.
void drop_outdated_fits(Profile& profile, const std::vector<std::string>& changed, std::vector<std::string>& warnings) {
  if (std::find(changed.begin(), changed.end(), "collectives") != changed.end()) return;
  const auto touches = [&](const CollectiveFit& fit, const std::string& key) {
    if (key == "network.base_latency") return true;
    if (key == "network.all_reduce_algorithm" || key == "network.ring_model") return false;
    if (key.starts_with("topology.node_links")) return true;
    if (key.starts_with("topology.")) return fit.nodes > 1;
    if (key.starts_with("network.")) return fit.nodes > 1;
    return key == "node.ring_bandwidth" || key == "node.intra_latency";
  };
  for (const std::string& key : changed) {
    const auto dropped = std::erase_if(profile.collectives, [&](const CollectiveFit& fit) { return touches(fit, key); });
    if (dropped > 0)
      warnings.push_back(fmt::format("{} measured collectives of the profile are left out: the scenario overrides {}", dropped, key));
  }
}

Profile read_overridden_profile(MapReader& cluster, const std::string& folder, std::vector<std::string>& warnings) {
  Problems& problems = cluster.problems();
  const ConfigNode* name = cluster.require("profile");
  const auto tree = name ? read_named_file(*name, folder, FileFormat::yaml, problems) : nullptr;
  std::vector<std::string> changed;
  const ConfigNode root = overridden(tree ? *tree : ConfigNode{}, cluster, changed);  // marks the keys as known in any case
  if (!tree) return {};
  auto profile = read_profile(root);
  if (!profile) {
    append_at(problems, profile.error(), name->where);
    return {};
  }
  for (const std::string& key : changed) profile->origins[key] = "set by the scenario";
  drop_outdated_fits(*profile, changed, warnings);
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
  const std::int64_t nics = std::min<std::int64_t>(cluster.profile.network.nics_per_node, cluster.gpus_per_node);
  cluster.nics_per_node = reader.integer("nics_per_node", std::max<std::int64_t>(1, nics), 1, 1024);
  const ConfigNode* differences = reader.find("differences");
  reader.finish();
  if (cluster.world_size() > largest_world) {
    const ConfigNode* nodes = block.find("nodes");
    problems.add(nodes ? nodes->where : block.where,
                 fmt::format("a world size of {} is above the limit of {}", cluster.world_size(), largest_world));
  }
  if (known && cluster.profile.topology && problems.size() == before) check_topology(cluster, block, problems);
  if (differences && known && problems.size() == before) cluster.states = read_differences(*differences, cluster, folder, problems);
  return cluster;
}

}  // namespace shardsim
