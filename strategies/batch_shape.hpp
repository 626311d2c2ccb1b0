// SPDX-License-Identifier: Apache-2.0
// One schedule for many batch shapes: how many tokens a micro-batch has changes no decision of a library, only how large activations are
// and how much work they make. Sweeps and plans try many shapes of one job, and writing a schedule is most of what a job costs them.
#pragma once

#include "sim/schedule/schedule.hpp"
#include "strategies/strategy.hpp"

namespace shardsim {

/// Whether emit() gives two jobs the same ops: they differ in micro_batch_size and sequence_length alone, their models share parameters
/// and layers, and the same tensors are there. Answers no rather than compare what is rarely the same: experts split over ranks, whose
/// exchanges carry tokens, and models with adapters.
[[nodiscard]] bool share_ops(const Job& a, const Job& b);

/// Gives `schedule`, of a job that shares its ops with `job`, the works and the activations of `job`: it becomes emit(job).
void set_batch_shape(Schedule& schedule, const Job& job);

}  // namespace shardsim
