// SPDX-License-Identifier: Apache-2.0
// A cluster as a graph: GPUs, NVSwitches, PCIe switches, hosts and NICs of every node, and the switches between nodes. Two lines of YAML
// (profile and nodes) expand to it; a `topology` block describes any other. Alike nodes are kept once, so that 2,048 of them are cheap.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "sim/machine/profile.hpp"

namespace shardsim {

/// One direction of a cable. Vertices count within a node, or within the network.
struct Link {
  std::int32_t from = 0, to = 0;
  ByteRate capacity;
  Seconds latency;
};

/// Devices and links of a node, or of the network between nodes.
struct GraphPart {
  std::vector<std::string> names;
  std::vector<Link> links;               ///< both directions of a cable are neighbours: 2 i and 2 i + 1
  std::vector<std::int32_t> gpus, nics;  ///< vertices, by number

  std::int32_t vertex(const std::string& name);  ///< added where it is new
  void join(std::int32_t a, std::int32_t b, ByteRate capacity, Seconds latency);
};

/// Where a NIC's cable ends.
struct Attachment {
  std::int32_t network_switch = -1;  ///< vertex of the network
  ByteRate capacity;
  Seconds latency;
};

/// Traffic by link, in units of what the caller sends.
using LinkLoads = std::vector<double>;

class ClusterGraph {
 public:
  /// What cannot be expanded (a GPU without a path to another, NICs on networks that never meet, too many devices) is an error:
  /// what is wrong.
  [[nodiscard]] static tl::expected<ClusterGraph, std::string> expand(const Cluster& cluster);

  [[nodiscard]] std::int64_t nodes() const { return nodes_; }
  [[nodiscard]] const GraphPart& node() const { return node_; }
  [[nodiscard]] const GraphPart& network() const { return network_; }
  [[nodiscard]] std::size_t link_count() const { return first_network_link() + network_.links.size(); }

  /// NICs that are nearest to a GPU, both by number.
  [[nodiscard]] std::vector<std::int32_t> nics_beside(std::int32_t gpu) const;

  /// Adds `amount` to the links between two devices of a node (vertices), split evenly over paths of equal cost: wide links are cheap.
  void load_inside(std::int64_t node, std::int32_t from, std::int32_t to, double amount, LinkLoads& loads) const;
  /// The same from a NIC of a node to the NIC of the same number of another, through the network. Returns the latency of the way.
  Seconds load_across(std::int64_t from_node, std::int64_t to_node, std::int32_t nic, double amount, LinkLoads& loads) const;

  /// `amount` from this NIC of each of the nodes to that of each other.
  void load_exchange(std::span<const std::int64_t> nodes, std::int32_t nic, double amount, LinkLoads& loads) const;

  [[nodiscard]] ByteRate capacity(std::size_t link) const;
  /// "node0.nic0 to leaf0".
  [[nodiscard]] std::string name(std::size_t link) const;

 private:
  struct Use {
    std::int32_t link;
    double share;
  };
  struct Route {
    std::vector<Use> uses;
    Seconds latency;
  };
  /// What has been asked of a part: distances by source, routes by pair, and by vertex the links that lead there.
  struct RouteCache {
    std::map<std::int32_t, std::vector<double>> distances;
    std::map<std::pair<std::int32_t, std::int32_t>, Route> routes;
    std::vector<std::vector<std::int32_t>> incoming;
  };

  [[nodiscard]] const Attachment& attachment(std::int64_t node, std::int32_t nic) const {
    return attachments_[attachment_index(node, nic)];
  }
  [[nodiscard]] std::size_t attachment_index(std::int64_t node, std::int32_t nic) const {
    return static_cast<std::size_t>(node) * node_.nics.size() + static_cast<std::size_t>(nic);
  }
  // Links are numbered node by node, then out and in of every attachment, then the network.
  [[nodiscard]] std::size_t first_attachment() const { return static_cast<std::size_t>(nodes_) * node_.links.size(); }
  [[nodiscard]] std::size_t first_network_link() const { return first_attachment() + 2 * attachments_.size(); }
  static const Route& route(const GraphPart& part, RouteCache& cache, std::int32_t from, std::int32_t to);
  [[nodiscard]] std::string what_is_wrong(std::int64_t gpus_in_use) const;

  std::int64_t nodes_ = 1;
  GraphPart node_;  // all nodes are alike inside
  GraphPart network_;
  std::vector<Attachment> attachments_;  // by node and NIC
  mutable RouteCache routes_inside_, routes_across_;

  friend class GraphBuilder;
};

/// NICs of a node that its GPUs in use reach: a GPU reaches the NICs beside it only, so that one GPU of a node uses one NIC of eight.
[[nodiscard]] std::int64_t nics_in_use(const Cluster& cluster);

}  // namespace shardsim
