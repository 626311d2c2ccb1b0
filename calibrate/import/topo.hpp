// SPDX-License-Identifier: Apache-2.0
// `nvidia-smi topo -m`: how the GPUs and NICs of one node are connected.
#pragma once

#include <string>
#include <vector>

#include "sim/base/problem.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

/// Connections by row and column, in nvidia-smi's words: X, NV4, PIX, PXB, PHB, NODE, SYS.
struct NodeTopology {
  std::vector<std::string> gpus;  ///< "GPU0"
  std::vector<std::string> nics;  ///< "NIC0", "mlx5_0": whatever stands beside the GPUs in the header
  std::vector<std::vector<std::string>> between_gpus;
  std::vector<std::vector<std::string>> gpu_to_nic;

  /// NVLinks between the pair of GPUs that has the fewest; 0 where some pair has none.
  [[nodiscard]] int fewest_nvlinks() const;
  /// Every pair has more links than a GPU has ports for all peers: a switch joins them.
  [[nodiscard]] bool has_nvswitch() const;
};

/// A text without a matrix, and rows that do not fit their header, are problems; so are NVLinks that no GPU has.
[[nodiscard]] Result<NodeTopology> read_topology(const Source& source);

/// NVLinks that a word of the matrix stands for: 12 for NV12, 0 for any other.
[[nodiscard]] int nvlinks_of(const std::string& word);

/// Without NICs that no GPU has beside it where others have: those carry storage or management. Their names.
[[nodiscard]] std::vector<std::string> leave_out_far_nics(NodeTopology& topology);

/// The matrix as links inside a node: one NVSwitch or cables between GPUs, PCIe switches for what is PIX or PXB, hosts for PHB and NODE,
/// hosts joined for SYS. `nvlink`: of one NVLink; `pcie`: of a device's slot.
[[nodiscard]] std::vector<TopologyLinks> links_of(const NodeTopology& topology, ByteRate nvlink, ByteRate pcie);

/// A profile with a node's links, and what the reader of the matrix should know.
struct ImportedTopology {
  Profile profile;
  std::vector<std::string> notes;
};

/// `base` with the node's GPUs, NICs and links. What the base measured on another fabric (a ring of another rate, other numbers of GPUs or
/// NICs) is dropped, and the ring's bandwidth derived from the links.
[[nodiscard]] ImportedTopology with_topology(Profile base, NodeTopology topology, const std::string& source);

}  // namespace shardsim
