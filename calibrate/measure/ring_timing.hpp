// SPDX-License-Identifier: Apache-2.0
// How long collectives take between the ranks of a platform, measured by the ranks themselves.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "calibrate/execute/backends/backend.hpp"
#include "calibrate/import/collective_samples.hpp"
#include "calibrate/measure/progress.hpp"
#include "calibrate/measure/sample_journal.hpp"

namespace shardsim {

struct RingTiming {
  Seconds budget{10};                ///< for all rounds; at least one warm-up and one counted round are made, whatever the machine
  Bytes largest = mebibytes(4);      ///< of the payloads: 1 KiB, 1.5 KiB, 2 KiB, 3 KiB, ... up to this
  int warm_up = 1;                   ///< rounds that are not counted
  std::vector<int> group_sizes{};    ///< besides the whole world: groups of neighbours, all at work at once
  SampleJournal* journal = nullptr;  ///< of rank 0: what an interrupted run measured counts, its time too, and new samples join it
  Progress progress{};               ///< told by rank 0, up to `progress_share`
};

/// The rings' part of the progress bar of a calibration.
inline constexpr double progress_share = 0.6;

/// What a rank does: every collective at every size, again and again. Sizes are interleaved, so that a busy moment of the machine hits
/// all of them. Returns one line "KIND RANKS SIZE SECONDS" for each measurement, the slowest rank's time, on rank 0 (nothing on others).
[[nodiscard]] std::string time_rings(execute::Collectives& collectives, int rank, int ranks, const RingTiming& options,
                                     execute::Line& line);

/// Adds those lines. `hosts`: over how many the ranks are spread.
void add_timings(const std::string& lines, int hosts, const std::string& origin, CollectiveSamples& samples);

/// Bus bandwidth at the largest sizes, and the latency of a ring's step from the smallest: what the closed form uses for groups that were
/// not measured.
void derive_ring(Profile& profile);

}  // namespace shardsim
