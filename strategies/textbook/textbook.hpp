// SPDX-License-Identifier: Apache-2.0
// Which textbook scheme a strategy stands for.
#pragma once

#include "strategies/strategy.hpp"

namespace shardsim {

struct TextbookPlan {
  int stage = 0;           ///< what is sharded: 0 nothing, 1 optimizer states, 2 and gradients, 3 and parameters
  bool overlap = true;     ///< collectives run beside backward
  std::int64_t shard = 1;  ///< ranks of the shard group
  std::int64_t replicas = 1;
};

[[nodiscard]] TextbookPlan textbook_plan(const Job& job);

}  // namespace shardsim
