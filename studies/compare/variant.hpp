// SPDX-License-Identifier: Apache-2.0
// Scenarios that differ from one that was read in a few keys: what compare, plan and sweep simulate.
#pragma once

#include <string>
#include <vector>

#include "scenarios/reader/scenario.hpp"

namespace shardsim {

/// `base` with assignments as --set takes them ("training.micro_batch_size=2", "strategy={name: zero3}"). Problems: those of reading a
/// scenario, among them what the strategy's library forbids.
[[nodiscard]] Result<Scenario> vary(const Scenario& base, const std::vector<std::string>& assignments);

/// The assignment that chooses `strategy`: the scenario's own block if that is its strategy (its options belong to it), else the
/// strategy's defaults under the same semantics.
[[nodiscard]] std::vector<std::string> choose_strategy(const Scenario& base, const std::string& strategy);

/// The names in a comma-separated list; "all" is every strategy there is. Unknown names are an InputError.
[[nodiscard]] std::vector<std::string> strategy_list(const std::string& text);

/// The first message of some problems, for a line in a table.
[[nodiscard]] std::string first_message(const Problems& problems);

}  // namespace shardsim
