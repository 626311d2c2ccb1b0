// SPDX-License-Identifier: Apache-2.0
// Closed forms for the time of one collective. S is the full buffer, N the ranks, f = bus factor (2 (N - 1) / N for all-reduce), k the
// nodes (or NVLink domains) with m ranks each.
//
//   ring           T = c0 + inside alpha_i + crossing alpha_x + f S / min(B_node, B_nics)
//                  crossing = passes (k - 1), inside = passes (N - 1) - crossing
//   tree           T = c0 + 2 ((m - 1) alpha_i + log2(k) alpha_x) + max(2 S / (0.92 c B_node), busiest node / (c B_nics)), c = NCCL's
//                  correction by size; all-reduce only
//   nvls           T = alpha + max(S (1 + 1/m) / (0.85 B_node) [Blackwell: 0.74], bytes across / B_nics); all-reduce only. Across two nodes
//                  S leaves each node; on more NCCL's NVLSTree is no faster than a ring on the NICs
//   hierarchical   reduce-scatter inside, all-reduce of S / m across, all-gather inside, pipelined in P chunks:
//                  T = max(levels) + (sum - max) / P
//   pairwise       all-to-all: every rank sends S / N to every other; the share that leaves the node crosses its NICs
//
// A profile's latencies are those of the LL protocol. On a machine that runs NCCL rings and trees take the least time of the protocols LL,
// LL128 and Simple, which trade latency for bandwidth: alphas grow, and bandwidths shrink, by the figures of NCCL's tuner.
// SOURCE: NCCL src/graph/tuning.cc (nccl_tables.hpp), logs named in docs/accuracy-collectives.md.
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
  NcclProtocol protocol = NcclProtocol::simple;
};

/// One ring through all ranks; a pipelined chain for broadcast and reduce; pairwise exchange for all-to-all.
[[nodiscard]] ClosedForm flat_ring(Collective collective, Bytes payload, const RingPath& path);

/// Double-tree all-reduce: latency grows with log2(nodes), bandwidth is a little below the ring's inside a node.
[[nodiscard]] ClosedForm tree_all_reduce(Bytes payload, const RingPath& path);

/// All-reduce in the NVSwitch; across nodes the nodes' sums go up and down a tree, each rank's share over its share of the NICs.
[[nodiscard]] ClosedForm nvls_all_reduce(Bytes payload, const RingPath& path);

/// All-reduce by levels. `chunks`: how finely the levels overlap; 1 runs them one after the other.
[[nodiscard]] ClosedForm hierarchical_all_reduce(Bytes payload, const RingPath& path, std::int64_t chunks);

/// No algorithm is faster: the bytes that must leave a node over what its NICs carry. An all-reduce in the network's switches sends S once.
[[nodiscard]] Seconds narrowest_cut(Collective collective, Bytes payload, const RingPath& path);

}  // namespace shardsim
