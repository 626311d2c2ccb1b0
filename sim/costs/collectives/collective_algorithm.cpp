// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/collective_algorithm.hpp"

namespace shardsim {

__int128 sent_times_n(Algorithm algorithm, Collective collective, Bytes payload, const Placement& placement) {
  if (algorithm != Algorithm::nvls || collective != Collective::all_reduce) return sent_times_n(collective, payload, placement.ranks);
  const std::int64_t k = placement.nodes, m = placement.ranks / k;
  // n (S (1 + 1/m) + 2 S (k - 1) / (k m)) with n = k m
  return static_cast<__int128>(payload.value()) * ((m + 1) * k + 2 * (k - 1));
}

}  // namespace shardsim
