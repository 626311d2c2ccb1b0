// SPDX-License-Identifier: Apache-2.0
// Closed forms for the time of one collective. S is the full buffer, N the ranks, f = bus factor (2 (N - 1) / N for all-reduce).
//
//   ring           T = c0 + inside alpha_i + crossing alpha_x + f S / min(B_node, B_nics)
//                  crossing = passes (nodes - 1), inside = passes (N - 1) - crossing          (NCCL's rule, src/graph/tuning.cc)
//   tree           T = c0 + 2 ((ranks per node - 1) alpha_i + log2(nodes) alpha_x) + 2 S / (0.92 B); all-reduce only
//   nvls           T = c0 + alpha_i + S (1 + 1/m) / (0.85 B) [Blackwell: 0.74], across nodes a tree of S/m beside it; all-reduce only
//   hierarchical   reduce-scatter inside, all-reduce of S / m across, all-gather inside, pipelined in P chunks:
//                  T = max(levels) + (sum - max) / P
//   pairwise       all-to-all: every rank sends S / N to every other; the share that leaves the node crosses its NICs
#pragma once

#include "sim/base/collective.hpp"
#include "sim/costs/collectives/collective_placement.hpp"

namespace shardsim {

struct ClosedForm {
  Seconds time;
  Seconds fabric;       ///< part of it in which the node's fabric would be busy at full speed
  Seconds network;      ///< the same for the ring's share of the NICs
  Bytes fabric_bytes;   ///< that each GPU's link inside the node carries
  Bytes network_bytes;  ///< that leave each node
};

/// One ring through all ranks; a pipelined chain for broadcast and reduce; pairwise exchange for all-to-all.
[[nodiscard]] ClosedForm flat_ring(Collective collective, Bytes payload, const RingPath& path);

/// Double-tree all-reduce: latency grows with log2(nodes), bandwidth is a little below the ring's. The bytes sent by all ranks together
/// are those of the ring, 2 (N - 1) S. (NCCL: 0.92 of the ring's bandwidth at best.)
[[nodiscard]] ClosedForm tree_all_reduce(Bytes payload, const RingPath& path);

/// All-reduce in the NVSwitch. `efficiency`: share of a ring's bandwidth that multicast reaches (NCCL src/graph/tuning.cc: 0.85 on Hopper,
/// 0.74 on Blackwell). On several nodes the nodes' sums go up and down a tree, each rank's share over its share of the NICs.
[[nodiscard]] ClosedForm nvls_all_reduce(Bytes payload, const RingPath& path, double efficiency);

/// All-reduce by levels. `chunks`: how finely the levels overlap; 1 runs them one after the other.
[[nodiscard]] Seconds hierarchical_all_reduce(Bytes payload, const RingPath& path, std::int64_t chunks);
/// The same with the load of its levels.
[[nodiscard]] ClosedForm hierarchical_form(Bytes payload, const RingPath& path, std::int64_t chunks);

}  // namespace shardsim
