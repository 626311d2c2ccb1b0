// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/ring_embedding.hpp"

#include <algorithm>
#include <set>

#include "sim/costs/collectives/ring_packing.hpp"

namespace shardsim {
namespace {

/// The ranks of a group on one node.
struct NodeRun {
  std::int64_t node = 0;
  std::vector<std::int32_t> gpus;
};
using Ring = std::vector<NodeRun>;  // nodes in the ring's order

/// Every group that tiles the world.
std::vector<Ring> rings_of(const Cluster& cluster, const Group& group) {
  std::vector<Ring> rings;
  const std::int64_t world = cluster.world_size(), per_node = cluster.gpus_per_node;
  for (std::int64_t first = 0; first < world; ++first) {
    if (first / group.stride % group.size != 0 || first + (group.size - 1) * group.stride >= world) continue;
    Ring ring;
    for (std::int64_t i = 0; i < group.size; ++i) {
      const std::int64_t rank = first + i * group.stride;
      if (ring.empty() || ring.back().node != rank / per_node) ring.push_back({rank / per_node, {}});
      ring.back().gpus.push_back(static_cast<std::int32_t>(rank % per_node));
    }
    rings.push_back(std::move(ring));
  }
  return rings;
}

struct Slowest {
  ByteRate rate;
  std::string link;
};

Slowest slowest(const ClusterGraph& graph, const LinkLoads& loads) {
  double least = std::numeric_limits<double>::max();
  std::size_t where = loads.size();
  for (std::size_t i = 0; i < loads.size(); ++i) {
    // The last bits of a sum of shares must not choose between alike links.
    if (loads[i] <= 0 || graph.capacity(i).base() / loads[i] >= least * (1 - 1e-9)) continue;
    least = graph.capacity(i).base() / loads[i];
    where = i;
  }
  return where == loads.size() ? Slowest{} : Slowest{ByteRate{least}, graph.name(where)};
}

/// Loads of closed rings over the given GPUs of node 0, each of rate 1, in the order given.
Slowest closed_rings(const ClusterGraph& graph, const std::vector<std::vector<std::int32_t>>& orders) {
  LinkLoads loads(graph.node().links.size(), 0);
  const auto vertex = [&](std::int32_t gpu) { return graph.node().gpus[static_cast<std::size_t>(gpu)]; };
  for (const auto& order : orders)
    for (std::size_t i = 0; i < order.size(); ++i) graph.load_inside(0, vertex(order[i]), vertex(order[(i + 1) % order.size()]), 1, loads);
  return slowest(graph, loads);
}

/// What leaves a GPU at most: no ring is faster.
ByteRate egress(const ClusterGraph& graph, std::int32_t gpu) {
  ByteRate widest;
  for (const Link& link : graph.node().links)
    if (link.from == graph.node().gpus[static_cast<std::size_t>(gpu)]) widest = std::max(widest, link.capacity);
  return widest;
}

/// A ring through the GPUs of one group alone. In rank order where nothing better can be; where GPUs are joined in pairs (no NVSwitch),
/// the best of all orders of up to eight.
std::vector<std::int32_t> best_order(const ClusterGraph& graph, std::vector<std::int32_t> gpus) {
  constexpr std::size_t most = 8;
  Slowest best = closed_rings(graph, {gpus});
  ByteRate bound = best.rate * 1e9;
  for (const std::int32_t gpu : gpus) bound = std::min(bound, egress(graph, gpu));
  if (gpus.size() > most || gpus.size() < 4 || best.rate >= bound * (1 - 1e-9)) return gpus;
  std::vector<std::int32_t> order = gpus;
  while (std::next_permutation(order.begin() + 1, order.end())) {
    const Slowest here = closed_rings(graph, {order});
    if (here.rate <= best.rate * (1 + 1e-9)) continue;
    best = here;
    gpus = order;
  }
  return gpus;
}

/// The rings that a mesh of cables carries for the GPUs of one group.
Slowest packed(const ClusterGraph& graph, const std::vector<std::int32_t>& gpus) {
  CableMatrix cables(gpus.size(), std::vector<ByteRate>(gpus.size()));
  std::string name;
  const auto member = [&](std::int32_t vertex) {
    return std::ranges::find_if(gpus, [&](std::int32_t gpu) { return graph.node().gpus[static_cast<std::size_t>(gpu)] == vertex; }) -
           gpus.begin();
  };
  for (std::size_t i = 0; i < graph.node().links.size(); ++i) {
    const Link& link = graph.node().links[i];
    const auto from = static_cast<std::size_t>(member(link.from)), to = static_cast<std::size_t>(member(link.to));
    if (from == gpus.size() || to == gpus.size()) continue;
    cables[from][to] += link.capacity;
    if (name.empty()) name = graph.name(i);
  }
  return name.empty() ? Slowest{} : Slowest{packed_rings(cables), name};
}

/// One ring for each group, all at once; where cables join the GPUs in pairs, the several rings that these carry if that is more.
Slowest best_rings(const ClusterGraph& graph, std::vector<std::vector<std::int32_t>> orders) {
  Slowest over_cables{ByteRate{std::numeric_limits<double>::max()}, {}};
  for (auto& order : orders) {
    if (const Slowest here = packed(graph, order); here.rate < over_cables.rate) over_cables = here;
    order = best_order(graph, std::move(order));
  }
  const Slowest single = closed_rings(graph, orders);
  return over_cables.rate > single.rate ? over_cables : single;
}

/// All groups of a node run at once; nodes with the same groups are alike.
Slowest inside(const ClusterGraph& graph, const std::vector<Ring>& rings) {
  std::map<std::int64_t, std::vector<std::vector<std::int32_t>>> by_node;
  for (const Ring& ring : rings)
    for (const NodeRun& run : ring)
      if (run.gpus.size() > 1) by_node[run.node].push_back(run.gpus);
  std::set<std::vector<std::vector<std::int32_t>>> patterns;
  for (auto& [node, groups] : by_node) patterns.insert(std::move(groups));
  Slowest worst;
  for (const std::vector<std::vector<std::int32_t>>& orders : patterns) {
    const Slowest here = best_rings(graph, orders);
    if (worst.link.empty() || here.rate < worst.rate) worst = here;
  }
  return worst;
}

/// Rings across nodes, channel by channel.
class Across {
 public:
  Across(const ClusterGraph& graph, std::size_t gpus) : graph_(graph), ring_loads_(graph.link_count(), 0), exchange_loads_(ring_loads_) {
    for (std::size_t i = 0; i < gpus; ++i) beside_.push_back(graph.nics_beside(static_cast<std::int32_t>(i)));
  }

  void add(const Ring& ring, bool exchange) {
    if (ring.size() < 2) return;
    const std::vector<std::int32_t> nics = nics_of(ring.front());
    // The GPU that leaves a node stands before the one that entered, and so do the NICs beside it.
    const std::size_t back = ring.front().gpus.size() > 1 ? std::max<std::size_t>(1, nics.size() / ring.front().gpus.size()) : 0;
    const double share = 1 / static_cast<double>(nics.size());
    for (std::size_t c = 0; c < nics.size(); ++c) add_channel(ring, nics[c], nics[(c + nics.size() - back) % nics.size()], share);
    if (exchange) add_exchange(ring, nics);
  }

  [[nodiscard]] Slowest ring() const { return slowest(graph_, ring_loads_); }
  [[nodiscard]] Slowest exchange() const { return slowest(graph_, exchange_loads_); }
  [[nodiscard]] Seconds hop() const { return hops_ > 0 ? latency_ / hops_ : Seconds{}; }

 private:
  [[nodiscard]] const std::vector<std::int32_t>& beside(std::int32_t gpu) const { return beside_[static_cast<std::size_t>(gpu)]; }

  [[nodiscard]] std::vector<std::int32_t> nics_of(const NodeRun& run) const {
    std::set<std::int32_t> nics;
    for (const std::int32_t gpu : run.gpus) nics.insert(beside(gpu).begin(), beside(gpu).end());
    return {nics.begin(), nics.end()};
  }

  /// The GPU of the run that the NIC stands beside; the first where it stands beside none. Where several GPUs and NICs share a switch, each
  /// NIC has a GPU of its own.
  [[nodiscard]] std::int32_t gpu_beside(const NodeRun& run, std::int32_t nic) const {
    std::vector<std::int32_t> near;
    for (const std::int32_t gpu : run.gpus)
      if (std::ranges::find(beside(gpu), nic) != beside(gpu).end()) near.push_back(gpu);
    if (near.empty()) return vertex(run.gpus.front());
    const auto& nics = beside(near.front());
    const auto place = static_cast<std::size_t>(std::ranges::find(nics, nic) - nics.begin());
    return vertex(near[place * near.size() / nics.size() % near.size()]);
  }

  [[nodiscard]] std::int32_t vertex(std::int32_t gpu) const { return graph_.node().gpus[static_cast<std::size_t>(gpu)]; }

  /// Even nodes are entered by NIC a and left by b, odd ones the other way round, so that no step changes rails. The last of an odd number
  /// of nodes relays to NIC a, which leads back to the first.
  void add_channel(const Ring& ring, std::int32_t a, std::int32_t b, double share) {
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const NodeRun& here = ring[i];
      const NodeRun& next = ring[(i + 1) % ring.size()];
      const bool even = i % 2 == 0, closes = i + 1 == ring.size();
      const std::int32_t nic = even && !closes ? b : a;
      const std::int32_t vertex_of_nic = graph_.node().nics[static_cast<std::size_t>(nic)];
      graph_.load_inside(here.node, gpu_beside(here, even ? b : a), vertex_of_nic, share, ring_loads_);
      latency_ += graph_.load_across(here.node, next.node, nic, share, ring_loads_);
      graph_.load_inside(next.node, vertex_of_nic, gpu_beside(next, nic), share, ring_loads_);
      ++hops_;
    }
  }

  /// Every rank sends 1/n of its buffer to each other; a message goes by the rail of its channel.
  void add_exchange(const Ring& ring, const std::vector<std::int32_t>& nics) {
    std::vector<std::int64_t> nodes;
    double ranks = 0;
    for (const NodeRun& run : ring) {
      nodes.push_back(run.node);
      ranks += static_cast<double>(run.gpus.size());
    }
    const double per_node = ranks / static_cast<double>(nodes.size());
    for (const std::int32_t nic : nics)
      graph_.load_exchange(nodes, nic, per_node * per_node / ranks / static_cast<double>(nics.size()), exchange_loads_);
  }

  const ClusterGraph& graph_;
  std::vector<std::vector<std::int32_t>> beside_;  // by GPU
  LinkLoads ring_loads_, exchange_loads_;
  Seconds latency_;
  double hops_ = 0;
};

}  // namespace

RingEmbedding embed_rings(const ClusterGraph& graph, const Cluster& cluster, const Group& group, bool exchange) {
  const std::vector<Ring> rings = rings_of(cluster, group);
  RingEmbedding embedding;
  const Slowest node = inside(graph, rings);
  embedding.inside = node.rate;
  embedding.inside_link = node.link;
  if (graph.nodes() == 1) return embedding;
  Across across(graph, static_cast<std::size_t>(cluster.gpus_per_node));
  for (const Ring& ring : rings) across.add(ring, exchange);
  const Slowest network = across.ring();
  embedding.across = network.rate;
  embedding.across_link = network.link;
  if (exchange) embedding.exchange = across.exchange().rate;
  embedding.hop = across.hop();
  return embedding;
}

}  // namespace shardsim
