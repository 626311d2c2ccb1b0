// SPDX-License-Identifier: Apache-2.0
// A step of ranks that are not all alike: one program for each class of alike ranks, which meet at their collectives.
#pragma once

#include <memory>

#include "sim/costs/cost_model.hpp"
#include "sim/engine/engine.hpp"

namespace shardsim {

/// Where ranks differ, whose pace the step keeps and who waits for it.
struct RankDifferences {
  struct Class {
    std::int64_t first = 0, ranks = 0;  ///< the lowest rank, and how many behave as it does
    std::string why;                    ///< "compute x1.2"; empty for ranks like the rest
    SimTime waited;                     ///< idle beyond what the rank that sets the pace is
  };
  std::vector<Class> classes;  ///< least waiting first: the front sets the pace, the back waits longest; at most `most_shown`
  std::int64_t class_count = 0;
  SimTime alike;  ///< the step if all ranks were as the profile says
  static constexpr std::size_t most_shown = 16;
};

struct UnlikeReplay {
  RankProgram program;  ///< of the class that sets the pace
  Timeline timeline;    ///< its own; `end` is the last of any rank
  std::shared_ptr<const RankDifferences> differences;
};

/// `cluster().states` of the cost model's cluster must hold a state for each rank.
[[nodiscard]] UnlikeReplay replay_unlike(const std::shared_ptr<const ReplayProgram>& program, const CostModel& costs);

}  // namespace shardsim
