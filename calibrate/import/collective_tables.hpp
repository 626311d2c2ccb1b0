// SPDX-License-Identifier: Apache-2.0
// Tables of published collective times: CSV with the columns gpu, collective, ranks, bytes and time_us, in any order, others passed over.
// All groups are of one node. Profiles that ship are fitted from such a table.
#pragma once

#include <string>
#include <vector>

#include "sim/base/problem.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

/// What to take from a table.
struct CollectiveTableFacts {
  std::string gpu;          ///< as the column names it; empty where the table has one GPU
  ByteRate ring_bandwidth;  ///< of the machine's node: a faster all-reduce of several GPUs was added in the switch
};

/// Fits of every collective and group size, from the least of the times of a size: segments and the largest size, without the rows. The
/// origin names the table, its library versions and how far the fit is from it.
[[nodiscard]] Result<std::vector<CollectiveFit>> read_collective_table(const Source& source, const CollectiveTableFacts& facts);

}  // namespace shardsim
