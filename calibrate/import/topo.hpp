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
  std::vector<std::string> nics;  ///< "NIC0", "mlx5_0"
  std::vector<std::vector<std::string>> between_gpus;
  std::vector<std::vector<std::string>> gpu_to_nic;

  /// NVLinks between the pair of GPUs that has the fewest; 0 where some pair has none.
  [[nodiscard]] int fewest_nvlinks() const;
};

/// A text without a matrix, and rows that do not fit their header, are problems.
[[nodiscard]] Result<NodeTopology> read_topology(const Source& source);

/// NVLinks that a word of the matrix stands for: 12 for NV12, 0 for any other.
[[nodiscard]] int nvlinks_of(const std::string& word);

/// The matrix as links inside a node: one NVSwitch or cables between GPUs, PCIe switches for what is PIX or PXB, hosts for PHB and NODE,
/// hosts joined for SYS. `nvlink`: of one NVLink; `pcie`: of a device's slot.
[[nodiscard]] std::vector<TopologyLinks> links_of(const NodeTopology& topology, ByteRate nvlink, ByteRate pcie);

/// `base` with the node's GPUs, NICs and links. A ring's bandwidth is derived from the links (and said to be) unless the base has measured
/// it on NVLink already.
[[nodiscard]] Profile with_topology(Profile base, const NodeTopology& topology, const std::string& source);

}  // namespace shardsim
