// SPDX-License-Identifier: Apache-2.0
// A measured run beside the prediction: the `measured:` block of a scenario.
//
//   measured:
//     tokens_per_second_per_gpu: 5400   # or tokens_per_second of all, or step_time, or gpu_hours and tokens
//     peak_bytes: 61.2 GiB              # torch.cuda.max_memory_allocated
#pragma once

#include "scenarios/reader/scenario.hpp"
#include "sim/engine/measured_run.hpp"
#include "sim/engine/result.hpp"

namespace shardsim {

/// What the run's figures come to, how far the prediction is from them, and why one of them cannot be what it is said to be. Nothing
/// without the block; unknown keys and wrong values are an InputError.
[[nodiscard]] std::shared_ptr<const MeasuredRun> measured_run(const Scenario& scenario, const SimulationResult& predicted);

}  // namespace shardsim
