// SPDX-License-Identifier: Apache-2.0
// Which collectives are timed in which order, on which ranks: everything of `calibrate nccl` but NCCL.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/gpu/gpu_device.hpp"
#include "calibrate/import/collective_samples.hpp"
#include "calibrate/measure/progress.hpp"
#include "calibrate/ranks/line.hpp"

namespace shardsim {

/// Sizes and rounds. A round goes once through all sizes and collectives, so that a disturbance meets all of them alike and a run that is
/// stopped has some of everything. Before the first, each is called once to warm up.
struct NcclRounds {
  Bytes smallest = kibibytes(1), largest = mebibytes(1024);
  int rounds = 5;
  [[nodiscard]] std::vector<Bytes> sizes() const;  ///< powers of two
};

/// Calls in a row that one measurement averages: many of what is short.
[[nodiscard]] int calls_in_a_row(Bytes size);

/// The size nearest below that `ranks` ranks share evenly in bf16 (all-gather and reduce-scatter take equal parts only); may be zero.
[[nodiscard]] Bytes even_size(Collective kind, Bytes size, std::int64_t ranks);

/// "2,4,8" as group sizes up to `ranks`, in order and each once; empty text: `ranks` alone. Throws InputError.
[[nodiscard]] std::vector<int> group_sizes(std::string_view text, int ranks);

/// How many hosts the first `ranks` of `hosts` (a name for each rank) are.
[[nodiscard]] std::int64_t nodes_of(const std::vector<std::string>& hosts, int ranks);

/// Measurements of an interrupted run, by what was measured, and where new ones are kept as they come.
struct NcclRecord {
  std::map<std::string, double> earlier{};
  std::function<void(const std::string& line)> keep = [](const std::string&) {};
};
/// From lines as `keep` gets them; others are passed over.
[[nodiscard]] std::map<std::string, double> measurements_in(const std::vector<std::string>& lines);

/// A group that is timed: the first `ranks` ranks.
struct NcclGroupRun {
  gpu::CollectiveTimer* timer = nullptr;  ///< null in ranks outside the group
  int ranks = 2;
  std::int64_t nodes = 1;
  execute::Line* line = nullptr;  ///< between all ranks: a sample is then the time of the slowest; null: one process
  std::string origin;
};

/// Adds a sample for each round, size and collective. All ranks hold the same record.
void measure_rounds(const NcclRounds& plan, const NcclGroupRun& run, const NcclRecord& record, CollectiveSamples& samples,
                    const Progress& progress);

}  // namespace shardsim
