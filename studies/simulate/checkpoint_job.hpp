// SPDX-License-Identifier: Apache-2.0
// From a scenario to the report of its checkpoint.
#pragma once

#include "scenarios/reader/scenario.hpp"
#include "sim/engine/result.hpp"

namespace shardsim {

/// What a checkpoint of the scenario's job writes and reads. The request's bandwidths must be given.
[[nodiscard]] CheckpointReport report_checkpoint(const Scenario& scenario, const CheckpointRequest& request);

/// Adds the checkpoint that the scenario asks for, and a warning where a node's memory cannot stage it.
void add_checkpoint(const Scenario& scenario, SimulationResult& result);

}  // namespace shardsim
