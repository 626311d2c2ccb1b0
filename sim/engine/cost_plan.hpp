// SPDX-License-Identifier: Apache-2.0
// Which ops of a schedule cost the same on any machine: thousands of ops, a few hundred prices.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/engine.hpp"

namespace shardsim {

class CostModel;

/// Ops that cost the same whatever the machine, found once for a schedule; pricing them for another machine is then cheap.
class CostPlan {
 public:
  explicit CostPlan(const Schedule& schedule);

  /// By op index. `schedule` is the one that the plan was made for.
  [[nodiscard]] std::vector<OpCost> costs(const CostModel& model, const Schedule& schedule) const;

 private:
  struct Priced {
    std::int32_t op, in_class;
  };
  std::vector<OpId> examples_;  // an op of each class
  std::vector<Priced> priced_;  // the ops that are in one: allocations, most of a schedule, cost nothing
};

}  // namespace shardsim
