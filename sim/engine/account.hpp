// SPDX-License-Identifier: Apache-2.0
// Exact bytes: a fold over the Schedule's collectives, by the algebra of collective.hpp.
#pragma once

#include "sim/costs/collectives/collective_algorithm.hpp"
#include "sim/engine/result.hpp"

namespace shardsim {

/// Rows by (group, collective, dtype, payload), totals, psi_units (over `psi` elements of 2 bytes... see the contract: sum of passes x
/// payload in bytes / psi), min/mean/max over ranks where broadcast and reduce roots make them differ.
/// Textbook fields and cost_model of the rows are left empty. `chooser` says which algorithm each call takes; without one all are rings,
/// and chains for broadcast and reduce.
[[nodiscard]] Traffic account(const Schedule& schedule, Elements psi, const Chooser& chooser = {});

}  // namespace shardsim
