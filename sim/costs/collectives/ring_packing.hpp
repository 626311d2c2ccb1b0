// SPDX-License-Identifier: Apache-2.0
// Several rings at once over cables between pairs of GPUs: what a mesh without a switch reaches.
#pragma once

#include <vector>

#include "sim/base/units.hpp"

namespace shardsim {

/// Capacity of the cable from each GPU to each other; zero where there is none.
using CableMatrix = std::vector<std::vector<ByteRate>>;

/// Sum of the rates of rings through all GPUs that the cables carry together, each ring over cables alone; zero where no such ring is. NCCL
/// searches whole rings; this packs shares of rings, of which a DGX-1's hybrid cube mesh holds 6 links and eight MI300X hold 7. For up to
/// eight GPUs; larger meshes give zero.
[[nodiscard]] ByteRate packed_rings(const CableMatrix& cables);

}  // namespace shardsim
