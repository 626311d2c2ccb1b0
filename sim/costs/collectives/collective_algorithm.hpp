// SPDX-License-Identifier: Apache-2.0
// Which way a collective goes, and the bytes that it puts on the wire that way.
//
//   n ranks on k nodes, m = n / k of them on each; S bytes in the full buffer. Sent by the average rank:
//   ring, chain, pairwise      see sim/base/collective.hpp
//   tree          all-reduce   2 S (n - 1) / n: every rank but the root sends S up, every rank but the leaves S down to each child; the
//                              ranks together send what those of a ring do
//   nvls          all-reduce   one node: S (1 + 1/n): S up into the switch that adds, the own S/n of the sum down through it.
//                              k nodes: S (1 + 1/m) inside, and the tree's 2 S (k - 1) / k of each node spread over its m ranks
//   hierarchical  all-reduce   reduce-scatter and all-gather inside, all-reduce of S/m across: 2 S (n - 1) / n, as the ring
//
// Sources: NCCL src/device/all_reduce.h; the "N + 1 against 2 N" argument for NVLS in nccl-tests doc/PERFORMANCE.md.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "sim/base/collective.hpp"
#include "sim/costs/collectives/collective_placement.hpp"

namespace shardsim {

enum class Algorithm : std::uint8_t { ring, chain, pairwise, tree, nvls, hierarchical };

[[nodiscard]] constexpr std::string_view name_of(Algorithm a) {
  switch (a) {
    case Algorithm::ring:
      return "ring";
    case Algorithm::chain:
      return "chain";
    case Algorithm::pairwise:
      return "pairwise";
    case Algorithm::tree:
      return "tree";
    case Algorithm::nvls:
      return "nvls";
    case Algorithm::hierarchical:
      return "hierarchical";
  }
  return "?";
}

/// Bytes that the average rank sends, times the number of ranks: divide the sum over calls once.
[[nodiscard]] __int128 sent_times_n(Algorithm algorithm, Collective collective, Bytes payload, const Placement& placement);

/// NVSwitch adds for three GPUs and more of a node.
[[nodiscard]] constexpr bool nvls_is_possible(const Placement& placement) { return placement.ranks_per_node > 2; }

/// The algorithm of a call, and where its group stands.
struct Chosen {
  Algorithm algorithm = Algorithm::ring;
  Placement placement;
};
using Chooser = std::function<Chosen(Collective, Bytes payload, const Group&)>;

}  // namespace shardsim
