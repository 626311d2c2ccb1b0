// SPDX-License-Identifier: Apache-2.0
// A prediction next to a real run: table, JSON (shardsim.verify/1), page.
#pragma once

#include <string>

#include "reports/html/html.hpp"
#include "sim/base/json_value.hpp"
#include "studies/verify/verify.hpp"

namespace shardsim {

[[nodiscard]] std::string verification_table(const Verification& v);
[[nodiscard]] Json verification_json(const Verification& v);
[[nodiscard]] HtmlPage verification_page(const Verification& v);

}  // namespace shardsim
