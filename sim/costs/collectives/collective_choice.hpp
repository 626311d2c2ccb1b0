// SPDX-License-Identifier: Apache-2.0
// Which algorithm a collective takes: the one that the profile pins, else the one that the library would run.
#pragma once

#include <optional>
#include <string>

#include "sim/costs/collectives/collective_algorithm.hpp"
#include "sim/costs/collectives/collective_models.hpp"

namespace shardsim {

/// The way of a collective that has only one: ring, chain or pairwise exchange.
[[nodiscard]] Algorithm natural_algorithm(Collective collective);

/// What a profile's all_reduce_algorithm pins; nothing for "library" and "auto".
[[nodiscard]] std::optional<Algorithm> pinned_algorithm(const std::string& all_reduce_algorithm);

struct Route {
  Algorithm way = Algorithm::ring;
  ClosedForm form;
};

/// NCCL takes the algorithm and protocol of the least predicted time. So does this, with the bandwidths and latencies of the profile in
/// place of those that NCCL assumes of a machine: it sees the NIC, and its choice and its time are one. `pinned` holds for all-reduce;
/// what is impossible on the path (NVLS with two ranks, levels on one node) is a ring.
[[nodiscard]] Route route_of(Collective collective, Bytes payload, const RingPath& path, std::optional<Algorithm> pinned = {});

}  // namespace shardsim
