// SPDX-License-Identifier: Apache-2.0
// The contract: one simulated step as JSON (schema shardsim.simulate/1) and as a row of CSV.
#pragma once

#include <span>
#include <string>

#include "sim/base/json_value.hpp"
#include "sim/engine/assumption.hpp"
#include "sim/engine/result.hpp"

namespace shardsim {

[[nodiscard]] Json simulate_json(const SimulationResult& result);

/// What a prediction assumes, the largest effect first.
[[nodiscard]] Json assumed_json(const Assumptions& assumed);

/// The single figures of some of its parts ("step", "memory", "model" ...): what is left out is lists. For sweeps, whose rows show a few.
[[nodiscard]] Json simulate_figures(const SimulationResult& result, std::span<const std::string> parts);

/// Every single figure of the JSON is a column named by its dotted path; lists are left out. With a header line; fields are quoted where
/// RFC 4180 asks for it.
[[nodiscard]] std::string simulate_csv(std::span<const SimulationResult> results);

}  // namespace shardsim
