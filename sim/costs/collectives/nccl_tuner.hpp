// SPDX-License-Identifier: Apache-2.0
// NCCL's own time model, as published in its source (src/graph/tuning.cc, NCCL 2.30.7): what is expected of a system nobody measured,
// and which algorithm and protocol NCCL would pick there. Launch costs are not in it; medians of 19 % on public measurements.
#pragma once

#include <array>
#include <string>

#include "sim/base/collective.hpp"
#include "sim/base/units.hpp"
#include "sim/costs/collectives/nccl_tables.hpp"

namespace shardsim {

/// A system as NCCL's topology search sees it.
struct NcclSystem {
  NcclGeneration generation = NcclGeneration::hopper;
  std::int64_t ranks = 8;
  std::int64_t nodes = 1;
  std::int64_t channels = 12;
  double intra_gbs = 30;  ///< of one channel inside the node, GB/s: search speed (A100 12 x 20, H100 12 x 30, B200 16 x 45)
  double inter_gbs = 12;  ///< of one channel between nodes
  bool nvlink = true;
  double net_overhead_us = 1;  ///< 2 on AMD hosts
};

/// The systems that the published searches find: one node of A100, H100 (and H200), B200.
[[nodiscard]] NcclSystem nccl_system(NcclGeneration generation, std::int64_t ranks);

struct NcclChoice {
  NcclAlgorithm algorithm = NcclAlgorithm::ring;
  NcclProtocol protocol = NcclProtocol::simple;
  Seconds time;
};

/// Predicted time of one call; a negative time means that NCCL does not offer this combination.
[[nodiscard]] Seconds nccl_time(const NcclSystem& system, Collective collective, Bytes payload, NcclAlgorithm algorithm,
                                NcclProtocol protocol);

/// What NCCL picks: the combination with the smallest predicted time. For all-reduce, all-gather and reduce-scatter.
[[nodiscard]] NcclChoice nccl_choice(const NcclSystem& system, Collective collective, Bytes payload);

}  // namespace shardsim
