// SPDX-License-Identifier: Apache-2.0
// Which ranks of a job behave alike, so that one program stands for all of them.
//
// Two ranks are alike if they are in the same state and every group that they are in meets ranks of the same kinds. That is the coarsest
// partition which refines itself: start with the states, and split a class as long as its members' groups hold different sets of classes.
// Ranks of one class reach every collective at the same time, so a replay of one program a class is the replay of all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/schedule/schedule.hpp"

namespace shardsim {

struct RankClass {
  std::int64_t first = 0;  ///< the lowest rank
  std::int64_t ranks = 0;
  std::uint32_t state = 0;             ///< index given in `state_of_rank`
  std::vector<std::int32_t> meetings;  ///< by communicator of the schedule: classes with equal numbers meet on it
};

/// By first rank. `state_of_rank` has an index for each rank of the schedule's world.
[[nodiscard]] std::vector<RankClass> fold_ranks(const Schedule& schedule, std::span<const std::uint32_t> state_of_rank);

}  // namespace shardsim
