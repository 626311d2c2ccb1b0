// SPDX-License-Identifier: Apache-2.0
// A plan as JSON (schema shardsim.plan/1), as one screen of text, and as rows of CSV.
#pragma once

#include <string>

#include "cli/planner.hpp"
#include "reports/json.hpp"

namespace shardsim {

[[nodiscard]] Json plan_json(const Plan& plan);
[[nodiscard]] std::string plan_table(const Plan& plan);
/// The Pareto front, one row a point; the scaling study instead where there is one.
[[nodiscard]] std::string plan_csv(const Plan& plan);

}  // namespace shardsim
