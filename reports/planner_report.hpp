// SPDX-License-Identifier: Apache-2.0
// A plan as JSON (schema shardsim.plan/1), as one screen of text, as rows of CSV and as a page.
#pragma once

#include <string>

#include "reports/html/html.hpp"
#include "sim/base/json_value.hpp"
#include "studies/plan/planner.hpp"

namespace shardsim {

[[nodiscard]] Json plan_json(const Plan& plan);
[[nodiscard]] std::string plan_table(const Plan& plan);
/// The Pareto front, one row a point; the scaling study instead where there is one.
[[nodiscard]] std::string plan_csv(const Plan& plan);
/// Answers, the Pareto front as a scatter, and the scaling curve with its cliff marked (planner_html.cpp).
[[nodiscard]] HtmlPage plan_page(const Plan& plan);

}  // namespace shardsim
