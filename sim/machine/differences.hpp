// SPDX-License-Identifier: Apache-2.0
// Ranks that are unlike the rest: slower GPUs, degraded NICs, a busy host, another kind of GPU, and random spread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace shardsim {

struct Profile;

/// What one rank has in place of what its profile says. Factors of 1 change nothing.
struct RankState {
  double compute = 1;                        ///< kernels take so many times as long
  double host = 1;                           ///< the host takes so many times as long to launch one
  double nic = 1;                            ///< its NICs run at this share of their rate
  double collectives = 1;                    ///< collectives that it takes part in take so many times as long
  std::shared_ptr<const Profile> profile{};  ///< of another kind of GPU; none: the cluster's
  std::string why{};                         ///< "compute x1.2": for reports

  [[nodiscard]] bool operator==(const RankState&) const = default;
};

/// Every rank's state. Without any, all ranks are alike.
struct RankStates {
  std::vector<RankState> states;       ///< distinct
  std::vector<std::uint32_t> of_rank;  ///< index into `states`, by rank
  [[nodiscard]] bool empty() const { return of_rank.empty(); }
};

}  // namespace shardsim
