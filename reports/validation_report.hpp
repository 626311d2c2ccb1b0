// SPDX-License-Identifier: Apache-2.0
// A validation on one screen, and as the page docs/accuracy.md.
#pragma once

#include <string>

#include "studies/validate/validation.hpp"

namespace shardsim {

[[nodiscard]] std::string validation_table(const ValidationReport& report);
[[nodiscard]] std::string accuracy_page(const ValidationReport& report);

}  // namespace shardsim
