// SPDX-License-Identifier: Apache-2.0
// The algebra of collectives: what the ring algorithms send. One page; every other figure is derived from it.
//
//   n ranks, S bytes in the full (unsharded, padded) buffer, phi = (n - 1) / n
//   all-gather      S = gathered output     phi S sent by each rank   n - 1 steps
//   reduce-scatter  S = input               phi S                     n - 1 steps
//   all-reduce      S = buffer            2 phi S                     2 (n - 1) steps
//   all-to-all      S = local send buffer   phi S                     n - 1 steps
//   broadcast       S                       S, by all but the tail    n - 1 steps (chain)
//   reduce          S                       S, by all but the root    n - 1 steps (chain)
//
// Sources: NCCL src/device/{all_gather,reduce_scatter,all_reduce}.h; nccl-tests doc/PERFORMANCE.md.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sim/base/units.hpp"

namespace shardsim {

enum class Collective : std::uint8_t { all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all };

inline constexpr std::array<Collective, 6> all_collectives{Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                                           Collective::broadcast,  Collective::reduce,     Collective::all_to_all};

[[nodiscard]] constexpr std::string_view name_of(Collective c) {
  switch (c) {
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::all_gather:
      return "all_gather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::broadcast:
      return "broadcast";
    case Collective::reduce:
      return "reduce";
    case Collective::all_to_all:
      return "all_to_all";
  }
  return "?";
}

/// How often the payload crosses a rank's link for n -> infinity: 2 for all-reduce, 1 for the others. psi_units counts these.
[[nodiscard]] constexpr int passes(Collective c) { return c == Collective::all_reduce ? 2 : 1; }

/// Sequential steps of the ring (chain) on n ranks.
[[nodiscard]] constexpr std::int64_t ring_steps(Collective c, std::int64_t n) { return passes(c) * (n - 1); }

/// Bytes the average rank sends for `payload` (S above), exact as a fraction over n: numerator only.
/// Divide the sum over calls by n once, so that rounding happens once.
[[nodiscard]] constexpr __int128 sent_times_n(Collective c, Bytes payload, std::int64_t n) {
  return static_cast<__int128>(passes(c)) * (n - 1) * payload.value();
}

/// Bytes the average rank sends, rounded up to whole bytes.
[[nodiscard]] constexpr Bytes sent_per_rank(Collective c, Bytes payload, std::int64_t n) {
  return n <= 1 ? Bytes{} : Bytes{static_cast<std::int64_t>((sent_times_n(c, payload, n) + n - 1) / n)};
}

/// Sizes of the n segments into which a ring splits `count` elements: the first count % n are one longer.
[[nodiscard]] std::vector<std::int64_t> ring_segments(std::int64_t count, std::int64_t n);

/// Elements that rank r of n sends for a ring over `segments` (NCCL's order: rank r ends reduce-scatter owning segment r).
///   all-gather      count - segment[r + 1]
///   reduce-scatter  count - segment[r]
///   all-reduce      2 count - segment[r] - segment[r + 1]
/// Broadcast and reduce run along a chain from or to `root`; all-to-all sends all but the own segment.
[[nodiscard]] std::int64_t ring_sent_elements(Collective c, const std::vector<std::int64_t>& segments, std::int64_t r,
                                              std::int64_t root = 0);

/// nccl-tests' factor from algorithm bandwidth S/t to bus bandwidth.
[[nodiscard]] constexpr double bus_factor(Collective c, std::int64_t n) {
  if (n <= 1) return 1;
  if (c == Collective::broadcast || c == Collective::reduce) return 1;
  return static_cast<double>(passes(c)) * static_cast<double>(n - 1) / static_cast<double>(n);
}

}  // namespace shardsim
