// SPDX-License-Identifier: Apache-2.0
// One scenario's `expect` block against the result of its simulation.
#pragma once

#include "scenarios/reader/scenario.hpp"
#include "studies/check/check_case.hpp"
#include "studies/check/expression.hpp"

namespace shardsim {

/// A number of the result's JSON: integers stay exact.
[[nodiscard]] std::optional<ExactNumber> number_of(const Json& value);

/// The expectation of one line. An unknown metric, a formula that cannot be read, or a comparison without a tolerance where figures are
/// not integers are problems.
[[nodiscard]] Result<CheckCase> check_expectation(const Expectation& expectation, const Json& result, const Symbols& symbols);

/// The text of "+1.25 %"; empty where there is nothing to relate to.
[[nodiscard]] std::string moved_text(const ExactNumber& from, const ExactNumber& to);

}  // namespace shardsim
