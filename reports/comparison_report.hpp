// SPDX-License-Identifier: Apache-2.0
// A comparison as JSON (shardsim.compare/1), as a table and as a page.
#pragma once

#include <string>

#include "reports/html/html.hpp"
#include "sim/base/json_value.hpp"
#include "studies/compare/comparison.hpp"

namespace shardsim {

[[nodiscard]] Json comparison_json(const Comparison& comparison);
[[nodiscard]] std::string comparison_table(const Comparison& comparison);
/// Step time, memory against the capacity and traffic of each strategy (comparison_html.cpp).
[[nodiscard]] HtmlPage comparison_page(const Comparison& comparison);

}  // namespace shardsim
