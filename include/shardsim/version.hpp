// SPDX-License-Identifier: Apache-2.0
// The version of the library that a program is compiled with. The build takes its own version from here.
#pragma once

#include <string_view>

namespace shardsim {

inline constexpr std::string_view version = "0.2.0";

}  // namespace shardsim
