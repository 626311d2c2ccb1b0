// SPDX-License-Identifier: Apache-2.0
// Files that are embedded in the executable, for pages that open without a network.
#pragma once

#include <string_view>

namespace shardsim {

extern const std::string_view chart_library;  ///< Chart.js; empty where the build did not find it
extern const std::string_view report_script;
extern const std::string_view report_style;

}  // namespace shardsim
