// SPDX-License-Identifier: Apache-2.0
// From a profile and a number of nodes, and what a `topology` block says, to the graph.
#include <fmt/format.h>

#include <algorithm>

#include "sim/machine/cluster_graph.hpp"

namespace shardsim {
namespace {

constexpr std::size_t most_links = std::size_t{1} << 22;

/// Pairs of places in two lists that a wiring joins.
std::vector<std::pair<std::size_t, std::size_t>> joined(std::size_t a, std::size_t b, Wiring wiring) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  if (wiring == Wiring::all) {
    for (std::size_t i = 0; i < a; ++i)
      for (std::size_t j = 0; j < b; ++j) pairs.emplace_back(i, j);
    return pairs;
  }
  const std::size_t longer = std::max(a, b), shorter = std::min(a, b);
  for (std::size_t i = 0; i < longer; ++i) {
    const std::size_t other = wiring == Wiring::modulo ? i % shorter : i * shorter / longer;
    pairs.emplace_back(a >= b ? i : other, a >= b ? other : i);
  }
  return pairs;
}

/// The vertices "gpu0", "gpu1" ... of a part, by number; as many as there are without a gap.
std::vector<std::int32_t> numbered(const GraphPart& part, std::string_view stem) {
  std::vector<std::int32_t> vertices;
  while (true) {
    const auto found = std::ranges::find(part.names, fmt::format("{}{}", stem, vertices.size()));
    if (found == part.names.end()) return vertices;
    vertices.push_back(static_cast<std::int32_t>(found - part.names.begin()));
  }
}

}  // namespace

std::int32_t GraphPart::vertex(const std::string& name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    names.push_back(name);
    return static_cast<std::int32_t>(names.size()) - 1;
  }
  return static_cast<std::int32_t>(found - names.begin());
}

void GraphPart::join(std::int32_t a, std::int32_t b, ByteRate capacity, Seconds latency) {
  links.push_back({a, b, capacity, latency});
  links.push_back({b, a, capacity, latency});
}

std::int64_t nics_in_use(const Cluster& cluster) {
  const Profile& profile = cluster.profile;
  const std::int64_t beside = std::max<std::int64_t>(
      1, std::max<std::int64_t>(cluster.nics_per_node, profile.network.nics_per_node) / std::max(1, profile.node.gpus));
  return std::min(cluster.nics_per_node, cluster.gpus_per_node * beside);
}

class GraphBuilder {
 public:
  explicit GraphBuilder(const Cluster& cluster)
      : cluster_(cluster), profile_(cluster.profile), topology_(profile_.topology.value_or(Topology{})) {
    graph_.nodes_ = cluster.nodes;
  }

  tl::expected<ClusterGraph, std::string> build() {
    if (topology_.node_links.empty())
      add_gpus();
    else
      describe_node();
    number_devices();
    // The network hangs on the GPUs: whether they are there is known first.
    if (problem_.empty() && static_cast<std::int64_t>(graph_.node_.gpus.size()) < cluster_.gpus_per_node)
      problem_ = graph_.what_is_wrong(cluster_.gpus_per_node);
    if (problem_.empty() && cluster_.nodes > 1) {
      if (topology_.node_links.empty())
        add_nics();
      else if (numbered(graph_.node_, "nic").empty())
        add_nics_to_gpus();
      number_devices();
      if (topology_.links.empty())
        add_fabric();
      else
        describe_network();
    }
    number_devices();
    if (problem_.empty()) problem_ = graph_.what_is_wrong(cluster_.gpus_per_node);
    if (!problem_.empty()) return tl::unexpected(problem_);
    return std::move(graph_);
  }

 private:
  [[nodiscard]] ByteRate nic_rate() const { return profile_.network.nic_bandwidth * profile_.network.efficiency; }

  void number_devices() {
    graph_.node_.gpus = numbered(graph_.node_, "gpu");
    graph_.node_.nics = numbered(graph_.node_, "nic");
  }

  /// All GPUs on one NVSwitch. A link carries what a ring inside the node was measured to carry, protocol overhead off.
  void add_gpus() {
    GraphPart& node = graph_.node_;
    const std::int32_t first = node.vertex("gpu0");
    for (std::int64_t i = 1; i < cluster_.gpus_per_node; ++i) node.vertex(fmt::format("gpu{}", i));
    if (cluster_.gpus_per_node == 1) return;
    const std::int32_t nvswitch = node.vertex("nvswitch0");
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(cluster_.gpus_per_node); ++i)
      node.join(first + i, nvswitch, profile_.node.ring_bandwidth, profile_.node.intra_latency * 0.5);
  }

  [[nodiscard]] std::size_t nics() const { return static_cast<std::size_t>(std::max<std::int64_t>(1, nics_in_use(cluster_))); }

  /// Beside the GPUs of a described node whose NICs are not.
  void add_nics_to_gpus() {
    GraphPart& node = graph_.node_;
    const std::vector<std::int32_t> gpus = numbered(node, "gpu");
    for (const auto& [gpu, nic] : joined(gpus.size(), nics(), Wiring::blocks))
      node.join(gpus[gpu], node.vertex(fmt::format("nic{}", nic)), nic_rate(), {});
  }

  /// NICs and GPUs in blocks on PCIe switches, those on a host. PCIe is never the bound here: say so in a topology where it is.
  void add_nics() {
    GraphPart& node = graph_.node_;
    const std::vector<std::int32_t> gpus = numbered(node, "gpu");
    const std::size_t nics = this->nics();
    const std::size_t switches = std::min(gpus.size(), nics);
    const std::size_t on_a_switch = (nics + switches - 1) / switches;
    const ByteRate rate = std::max(profile_.gpu.host_link, nic_rate() * static_cast<double>(on_a_switch));
    const auto pcie = [&](std::size_t i, std::size_t of) { return node.vertex(fmt::format("pcie{}", i * switches / of)); };
    for (std::size_t i = 0; i < gpus.size(); ++i) node.join(gpus[i], pcie(i, gpus.size()), rate, {});
    for (std::size_t i = 0; i < nics; ++i) node.join(node.vertex(fmt::format("nic{}", i)), pcie(i, nics), rate, {});
    for (std::size_t i = 0; i < switches && switches > 1; ++i) node.join(pcie(i, switches), node.vertex("host0"), rate, {});
  }

  void describe_node() {
    for (const TopologyLinks& links : topology_.node_links) {
      const auto from = device_names(links.from), to = device_names(links.to);
      if (!from || !to) return fail(from ? to.error() : from.error());
      for (const auto& [i, j] : joined(from->size(), to->size(), links.wiring)) {
        if ((*from)[i] == (*to)[j]) continue;
        graph_.node_.join(graph_.node_.vertex((*from)[i]), graph_.node_.vertex((*to)[j]), links.bandwidth, links.latency);
        if (graph_.node_.links.size() > 1 << 16) return fail("the links of a node are more than 65,536");
      }
    }
  }

  void attach(std::int64_t node, std::size_t nic, const Attachment& to) {
    Attachment& here = graph_.attachments_[static_cast<std::size_t>(node) * graph_.node_.nics.size() + nic];
    if (here.network_switch >= 0) return fail(fmt::format("node{}.nic{} has two cables: describe it as two NICs", node, nic));
    here = to;
  }

  void room_for_attachments() {
    const std::size_t count = static_cast<std::size_t>(cluster_.nodes) * graph_.node_.nics.size();
    if (count > most_links) return fail("the cluster has too many NICs to be expanded");
    graph_.attachments_.assign(count, {});
  }

  /// Leaves and spines. A leaf has room for `nodes_per_leaf` nodes; its links to the spines share what the oversubscription leaves.
  void add_fabric() {
    room_for_attachments();
    if (!problem_.empty()) return;
    const std::size_t nics = graph_.node_.nics.size();
    const std::int64_t per_leaf = topology_.nodes_per_leaf > 0 ? topology_.nodes_per_leaf : cluster_.nodes;
    const std::int64_t rows = ceil_div(cluster_.nodes, per_leaf);
    GraphPart& network = graph_.network_;
    const auto name = [&](std::int64_t row, std::size_t nic) {
      return topology_.rails ? fmt::format("rail{}leaf{}", nic, row) : fmt::format("leaf{}", row);
    };
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::size_t nic = 0; nic < (topology_.rails ? nics : 1); ++nic) network.names.push_back(name(row, nic));
    const auto leaves = static_cast<std::int32_t>(network.names.size());
    for (std::int64_t node = 0; node < cluster_.nodes; ++node) {
      const std::int64_t row = topology_.scattered ? node % rows : node / per_leaf;
      for (std::size_t nic = 0; nic < nics; ++nic) {
        const auto leaf = topology_.rails ? row * static_cast<std::int64_t>(nics) + static_cast<std::int64_t>(nic) : row;
        attach(node, nic, {static_cast<std::int32_t>(leaf), nic_rate(), profile_.network.inter_latency * 0.5});
      }
    }
    if (leaves == 1) return;
    const double ports = static_cast<double>(per_leaf) * (topology_.rails ? 1 : static_cast<double>(nics));
    const ByteRate uplink = nic_rate() * (ports / topology_.oversubscription / static_cast<double>(topology_.spines));
    for (std::int64_t s = 0; s < topology_.spines; ++s) {
      network.names.push_back(fmt::format("spine{}", s));
      const std::int32_t spine = leaves + static_cast<std::int32_t>(s);
      for (std::int32_t leaf = 0; leaf < leaves; ++leaf) network.join(leaf, spine, uplink, topology_.spine_latency);
    }
  }

  /// A NIC of a node, or a switch.
  struct End {
    std::int64_t node = -1;
    std::string device;
  };

  std::vector<End> ends_of(const std::string& pattern) {
    std::vector<End> ends;
    const auto dot = pattern.find('.');
    const auto devices = device_names(dot == std::string::npos ? pattern : pattern.substr(dot + 1));
    if (!devices) return fail(devices.error()), ends;
    if (dot == std::string::npos) {
      for (const std::string& device : *devices) ends.push_back({-1, device});
      return ends;
    }
    std::vector<std::int64_t> nodes;
    if (pattern.starts_with("node*")) {
      for (std::int64_t i = 0; i < cluster_.nodes; ++i) nodes.push_back(i);
    } else if (const auto names = device_names(pattern.substr(0, dot))) {
      for (const std::string& name : *names)
        if (const std::int64_t i = std::strtoll(name.c_str() + 4, nullptr, 10); i < cluster_.nodes) nodes.push_back(i);  // 4: behind "node"
    }
    if (nodes.size() * devices->size() > most_links) return fail("the cluster has too many NICs to be expanded"), ends;
    for (const std::int64_t node : nodes)
      for (const std::string& device : *devices) ends.push_back({node, device});
    return ends;
  }

  void describe_network() {
    room_for_attachments();
    for (const TopologyLinks& links : topology_.links) {
      const std::vector<End> from = ends_of(links.from), to = ends_of(links.to);
      if (!problem_.empty()) return;
      if (from.empty() || to.empty()) continue;  // of nodes that are not in use
      if (links.wiring == Wiring::all && from.size() * to.size() > most_links) return fail("the links between nodes are too many");
      for (const auto& [i, j] : joined(from.size(), to.size(), links.wiring)) join(from[i], to[j], links);
      if (!problem_.empty()) return;
    }
  }

  void join(const End& a, const End& b, const TopologyLinks& links) {
    if (a.node < 0 && b.node < 0) {
      GraphPart& network = graph_.network_;
      if (a.device != b.device) network.join(network.vertex(a.device), network.vertex(b.device), links.bandwidth, links.latency);
      return;
    }
    if (a.node >= 0 && b.node >= 0) return fail("'links' join NICs with switches, and switches with each other");
    const End& inside = a.node >= 0 ? a : b;
    const End& outside = a.node >= 0 ? b : a;
    const auto& nics = graph_.node_.nics;
    const auto is_named = [&](std::int32_t vertex) { return graph_.node_.names[static_cast<std::size_t>(vertex)] == inside.device; };
    const auto nic = std::ranges::find_if(nics, is_named);
    if (nic == nics.end()) return fail(fmt::format("node{} has no {}", inside.node, in_quotes(inside.device)));
    const Attachment cable{graph_.network_.vertex(outside.device), links.bandwidth, links.latency};
    attach(inside.node, static_cast<std::size_t>(nic - nics.begin()), cable);
  }

  void fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  const Cluster& cluster_;
  const Profile& profile_;
  Topology topology_;
  ClusterGraph graph_;
  std::string problem_;
};

tl::expected<ClusterGraph, std::string> ClusterGraph::expand(const Cluster& cluster) { return GraphBuilder(cluster).build(); }

}  // namespace shardsim
