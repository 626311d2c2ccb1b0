// SPDX-License-Identifier: Apache-2.0
// What a fit to measured steps moved.
#pragma once

#include <string>

#include "studies/fit/runs.hpp"

namespace shardsim {

[[nodiscard]] std::string fit_table(const RunFit& fit);

}  // namespace shardsim
