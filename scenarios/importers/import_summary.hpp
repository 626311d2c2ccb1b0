// SPDX-License-Identifier: Apache-2.0
// What an importer says in one screen: what it understood, what it assumed, what changes the step and is not modelled.
#pragma once

#include "scenarios/importers/import.hpp"
#include "scenarios/reader/scenario.hpp"

namespace shardsim {

/// The keys that set nothing in the scenario, a line each for those that matter, those without effect said once.
[[nodiscard]] std::vector<std::string> account_of(const std::vector<IgnoredKey>& keys);
/// Model, ranks, batch, precision, strategy, assumptions and account.
[[nodiscard]] std::string summary_of(const Imported& imported, const std::string& origin, const Scenario& scenario);

}  // namespace shardsim
