// SPDX-License-Identifier: Apache-2.0
// Which collectives are timed in which order, on which ranks: everything of `calibrate nccl` but NCCL.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/collective_samples.hpp"
#include "calibrate/execute/line.hpp"
#include "calibrate/gpu_device.hpp"
#include "calibrate/progress.hpp"

namespace shardsim {

/// Sizes and rounds. A round goes once through all sizes and collectives, so that a disturbance meets all of them alike and a run that is
/// stopped has some of everything. The first only warms up.
struct NcclRounds {
  Bytes smallest = kibibytes(1), largest = mebibytes(1024);
  int rounds = 5;
  [[nodiscard]] std::vector<Bytes> sizes() const;   ///< powers of two
};

/// Calls in a row that one measurement averages: many of what is short.
[[nodiscard]] int calls_in_a_row(Bytes size);

/// The size nearest below that `ranks` ranks share evenly in bf16 (all-gather and reduce-scatter take equal parts only); may be zero.
[[nodiscard]] Bytes even_size(Collective kind, Bytes size, std::int64_t ranks);

/// "2,4,8" as group sizes up to `ranks`, in order and each once; empty text: `ranks` alone. Throws InputError.
[[nodiscard]] std::vector<int> group_sizes(std::string_view text, int ranks);

/// How many hosts the first `ranks` of `hosts` (a name for each rank) are.
[[nodiscard]] std::int64_t nodes_of(const std::vector<std::string>& hosts, int ranks);

/// Times the group of the first `ranks` ranks; `timer` is null in ranks outside it. With a `line` a sample is the time of the slowest rank.
void measure_rounds(const NcclRounds& plan, gpu::CollectiveTimer* timer, int ranks, std::int64_t nodes, execute::Line* line, const std::string& origin,
                    CollectiveSamples& samples, const Progress& progress);

}  // namespace shardsim
