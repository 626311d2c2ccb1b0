// SPDX-License-Identifier: Apache-2.0
// What calibrate local and calibrate mpi say of the machine itself: each core is a "GPU".
#pragma once

#include "calibrate/measure/progress.hpp"
#include "calibrate/measure/sample_journal.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

/// This machine as one node of `cores` cores: names, memory, and what is assumed of it. `command` stands in the origins.
[[nodiscard]] Profile describe_machine(const std::string& command, int cores);

/// Memory bandwidth and fp32 products of one core, within `budget`; `progress` runs from `from` towards 1. What the journal holds of an
/// interrupted run is not measured again.
void measure_core(Profile& profile, Seconds budget, double from, SampleJournal& journal, const Progress& progress);

/// What a journal's samples belong to: the same command with the same options on the same processor.
[[nodiscard]] std::string journal_job(const std::string& command, int ranks, Seconds budget);

}  // namespace shardsim
