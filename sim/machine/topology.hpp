// SPDX-License-Identifier: Apache-2.0
// How the devices of a cluster are wired, as a profile or a scenario writes it. cluster_graph.hpp expands it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/problem.hpp"
#include "sim/base/units.hpp"

namespace shardsim {

struct ConfigNode;

/// Which devices of two lists are joined, given in order: every one with every other; evenly in blocks (the first of the longer list with
/// the first of the shorter); or the i-th with the (i modulo length)-th, which is how rails are wired.
enum class Wiring : std::uint8_t { all, blocks, modulo };

/// Links of one kind. A name is letters and a number, "gpu0"; "gpu[0-7]" and "gpu[0,4]" are several. The letters say what a device is:
/// gpu, nvswitch, pcie, host, nic; anything else is a switch of the network.
struct TopologyLinks {
  std::string from, to;
  ByteRate bandwidth;  ///< of one link, each direction
  Seconds latency;
  Wiring wiring = Wiring::all;
  bool operator==(const TopologyLinks&) const = default;
};

/// What is left out is expanded from the profile: GPUs on one NVSwitch, NICs beside them, one switch that joins all nodes.
struct Topology {
  std::int64_t nodes_per_leaf = 0;  ///< 0: one switch
  double oversubscription = 1;      ///< bandwidth of a leaf to its nodes over that to the spines
  std::int64_t spines = 1;
  bool rails = false;                         ///< NIC i of every node hangs on a leaf of its own
  bool scattered = false;                     ///< consecutive nodes of the job stand on different leaves, not side by side
  Seconds spine_latency = microseconds(0.5);  ///< of the link between leaf and spine
  std::vector<TopologyLinks> node_links;      ///< inside each node
  std::vector<TopologyLinks> links;           ///< NICs ("node*.nic0", "node[0-3].nic[0-7]") with switches, switches with each other

  bool operator==(const Topology&) const = default;
};

/// Unknown keys, bad values and links without a capacity are problems; whether everything is joined is asked of the ClusterGraph.
[[nodiscard]] Topology read_topology_block(const ConfigNode& node, Problems& problems);

/// "gpu[0-2]" is gpu0, gpu1, gpu2. A text that is no name, and more than 2^16 of them, is an error: what is wrong.
[[nodiscard]] tl::expected<std::vector<std::string>, std::string> device_names(const std::string& pattern);

}  // namespace shardsim
