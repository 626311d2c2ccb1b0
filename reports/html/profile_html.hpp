// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "reports/html/html.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

/// A profile as a page: what it says of the machine with origins, and each collective's bandwidth, measured against fitted.
[[nodiscard]] HtmlPage profile_page(const Profile& profile);

}  // namespace shardsim
