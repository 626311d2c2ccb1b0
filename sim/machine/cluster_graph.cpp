// SPDX-License-Identifier: Apache-2.0
// Paths through the graph. The only file that sees Boost.Graph.
#include "sim/machine/cluster_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/connected_components.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>

namespace shardsim {
namespace {

using Weighted =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, boost::property<boost::edge_weight_t, double>>;
using Undirected = boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS>;

/// Vertices and links are 32-bit numbers; vectors want sizes.
template <class Vector>
decltype(auto) at(Vector& vector, std::int32_t i) {
  return vector[static_cast<std::size_t>(i)];
}

constexpr double unreachable = std::numeric_limits<double>::max();

/// What a byte costs on a link. A cable of a GB/s costs 1, so that of two ways the wider is taken (NVLink before PCIe).
double cost_of(const Link& link) { return 1e9 / std::max(1.0, link.capacity.base()); }

std::vector<double> distances_from(const GraphPart& part, std::int32_t source) {
  Weighted graph(part.names.size());
  for (const Link& link : part.links)
    boost::add_edge(static_cast<std::size_t>(link.from), static_cast<std::size_t>(link.to), cost_of(link), graph);
  std::vector<double> distances(part.names.size(), unreachable);
  boost::dijkstra_shortest_paths(graph, static_cast<std::size_t>(source), boost::distance_map(distances.data()));
  return distances;
}

std::vector<int> components_of(const GraphPart& part) {
  Undirected graph(part.names.size());
  for (std::size_t i = 0; i < part.links.size(); i += 2)
    boost::add_edge(static_cast<std::size_t>(part.links[i].from), static_cast<std::size_t>(part.links[i].to), graph);
  std::vector<int> components(part.names.size());
  if (!components.empty()) boost::connected_components(graph, components.data());
  return components;
}

bool lies_on_shortest_path(const Link& link, const std::vector<double>& distances) {
  const double before = distances[static_cast<std::size_t>(link.from)], after = distances[static_cast<std::size_t>(link.to)];
  return before < unreachable && std::abs(before + cost_of(link) - after) <= 1e-9 * after;
}

std::vector<std::vector<std::int32_t>> incoming_links(const GraphPart& part) {
  std::vector<std::vector<std::int32_t>> incoming(part.names.size());
  for (std::size_t i = 0; i < part.links.size(); ++i) at(incoming, part.links[i].to).push_back(static_cast<std::int32_t>(i));
  return incoming;
}

}  // namespace

/// Walks back from `to`, farthest vertex first: what arrives at a vertex is split evenly over the links that lead there at least cost.
const ClusterGraph::Route& ClusterGraph::route(const GraphPart& part, RouteCache& cache, std::int32_t from, std::int32_t to) {
  const auto [entry, fresh] = cache.routes.try_emplace({from, to});
  Route& route = entry->second;
  if (!fresh || from == to) return route;
  if (cache.incoming.empty()) cache.incoming = incoming_links(part);
  auto known = cache.distances.find(from);
  if (known == cache.distances.end()) known = cache.distances.emplace(from, distances_from(part, from)).first;
  const std::vector<double>& distances = known->second;
  std::vector<std::int32_t> order(part.names.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  std::ranges::stable_sort(order, [&](std::int32_t a, std::int32_t b) { return at(distances, a) > at(distances, b); });
  std::vector<double> arriving(part.names.size(), 0);
  arriving[static_cast<std::size_t>(to)] = 1;
  for (const std::int32_t vertex : order) {
    const double amount = arriving[static_cast<std::size_t>(vertex)];
    if (amount == 0 || vertex == from) continue;
    std::vector<std::int32_t> last;
    for (const std::int32_t i : cache.incoming[static_cast<std::size_t>(vertex)])
      if (lies_on_shortest_path(part.links[static_cast<std::size_t>(i)], distances)) last.push_back(i);
    for (const std::int32_t i : last) {
      const Link& link = part.links[static_cast<std::size_t>(i)];
      const double share = amount / static_cast<double>(last.size());
      route.uses.push_back({i, share});
      route.latency += link.latency * share;
      arriving[static_cast<std::size_t>(link.from)] += share;
    }
  }
  return route;
}

std::vector<std::int32_t> ClusterGraph::nics_beside(std::int32_t gpu) const {
  const std::vector<double> distances = distances_from(node_, node_.gpus[static_cast<std::size_t>(gpu)]);
  double least = unreachable;
  for (const std::int32_t vertex : node_.nics) least = std::min(least, distances[static_cast<std::size_t>(vertex)]);
  std::vector<std::int32_t> nearest;
  for (std::size_t i = 0; i < node_.nics.size(); ++i)
    if (least < unreachable && at(distances, node_.nics[i]) <= least * (1 + 1e-9)) nearest.push_back(static_cast<std::int32_t>(i));
  return nearest;
}

void ClusterGraph::load_inside(std::int64_t node, std::int32_t from, std::int32_t to, double amount, LinkLoads& loads) const {
  const std::size_t first = static_cast<std::size_t>(node) * node_.links.size();
  for (const Use& use : route(node_, routes_inside_, from, to).uses)
    loads[first + static_cast<std::size_t>(use.link)] += amount * use.share;
}

Seconds ClusterGraph::load_across(std::int64_t from_node, std::int64_t to_node, std::int32_t nic, double amount, LinkLoads& loads) const {
  const std::size_t out = attachment_index(from_node, nic), in = attachment_index(to_node, nic);
  loads[first_attachment() + 2 * out] += amount;
  loads[first_attachment() + 2 * in + 1] += amount;
  const Route& way = route(network_, routes_across_, attachments_[out].network_switch, attachments_[in].network_switch);
  for (const Use& use : way.uses) loads[first_network_link() + static_cast<std::size_t>(use.link)] += amount * use.share;
  return attachments_[out].latency + way.latency + attachments_[in].latency;
}

void ClusterGraph::load_exchange(std::span<const std::int64_t> nodes, std::int32_t nic, double amount, LinkLoads& loads) const {
  std::map<std::int32_t, double> on_switch;
  const double others = static_cast<double>(nodes.size()) - 1;
  for (const std::int64_t node : nodes) {
    const std::size_t index = attachment_index(node, nic);
    on_switch[attachments_[index].network_switch] += 1;
    for (const std::size_t direction : {0, 1}) loads[first_attachment() + 2 * index + direction] += amount * others;
  }
  for (const auto& [from, senders] : on_switch)
    for (const auto& [to, receivers] : on_switch)
      for (const Use& use : route(network_, routes_across_, from, to).uses)
        loads[first_network_link() + static_cast<std::size_t>(use.link)] += amount * senders * receivers * use.share;
}

ByteRate ClusterGraph::capacity(std::size_t link) const {
  if (link < first_attachment()) return node_.links[link % node_.links.size()].capacity;
  if (link < first_network_link()) return attachments_[(link - first_attachment()) / 2].capacity;
  return network_.links[link - first_network_link()].capacity;
}

std::string ClusterGraph::name(std::size_t link) const {
  const auto text = [](const std::string& from, const std::string& to) { return from + " to " + to; };
  if (link < first_attachment()) {
    const Link& l = node_.links[link % node_.links.size()];
    const std::string node = fmt::format("node{}.", link / node_.links.size());
    return text(node + node_.names[static_cast<std::size_t>(l.from)], node + node_.names[static_cast<std::size_t>(l.to)]);
  }
  if (link < first_network_link()) {
    const std::size_t index = (link - first_attachment()) / 2;
    const auto nic = static_cast<std::size_t>(node_.nics[index % node_.nics.size()]);
    const std::string device = fmt::format("node{}.{}", index / node_.nics.size(), node_.names[nic]);
    const std::string& end = network_.names[static_cast<std::size_t>(attachments_[index].network_switch)];
    return (link - first_attachment()) % 2 == 0 ? text(device, end) : text(end, device);
  }
  const Link& l = network_.links[link - first_network_link()];
  return text(network_.names[static_cast<std::size_t>(l.from)], network_.names[static_cast<std::size_t>(l.to)]);
}

std::string ClusterGraph::what_is_wrong(std::int64_t gpus_in_use) const {
  if (static_cast<std::int64_t>(node_.gpus.size()) < gpus_in_use)
    return fmt::format("{} GPUs of each node are in use, and the topology has {}", gpus_in_use, node_.gpus.size());
  const std::vector<int> inside = components_of(node_);
  for (const std::int32_t vertex : node_.gpus)
    if (inside[static_cast<std::size_t>(vertex)] != inside[static_cast<std::size_t>(node_.gpus.front())])
      return fmt::format("no path leads from {} to {}", at(node_.names, node_.gpus.front()), at(node_.names, vertex));
  if (nodes_ == 1) return {};
  if (nics_beside(0).empty()) return "no path leads from gpu0 to a NIC";
  const std::vector<int> networks = components_of(network_);
  for (std::int64_t node = 0; node < nodes_; ++node)
    for (std::int32_t nic = 0; nic < static_cast<std::int32_t>(node_.nics.size()); ++nic) {
      const std::int32_t here = attachment(node, nic).network_switch, first = attachment(0, nic).network_switch;
      if (here < 0) return fmt::format("node{}.nic{} is joined to no switch", node, nic);
      if (networks[static_cast<std::size_t>(here)] != networks[static_cast<std::size_t>(first)])
        return fmt::format("no path leads from node0.nic{} to node{}.nic{}", nic, node, nic);
    }
  return {};
}

}  // namespace shardsim
