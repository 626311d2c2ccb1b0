// SPDX-License-Identifier: Apache-2.0
// Runs a job on real memory and a real network, and sets what was measured beside what was predicted.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/execute/backends/backend.hpp"
#include "sim/base/problem.hpp"
#include "strategies/strategy.hpp"

namespace shardsim::execute {

/// One figure of every rank.
struct ByRank {
  std::vector<Bytes> predicted, measured;
  Bytes tolerance{};  ///< of counters that count in steps, or others' bytes too; else nothing
  [[nodiscard]] bool equal() const;
};

/// What the allocator of a rank's device says, and what it should: the exact bytes of the schedule's buffers at least, and at most what
/// allocations of their sizes take.
struct PoolCheck {
  PoolUse use;
  Bytes least, most;
  [[nodiscard]] bool within() const;
};

/// How far two floating-point runs may stand apart, and how far they do.
struct Closeness {
  double largest_difference = 0;
  double tolerance = 0;
  /// False for a NaN too.
  [[nodiscard]] bool within() const { return largest_difference <= tolerance; }
};

struct ExecutionResult {
  std::string strategy, semantics;
  ByRank sent;  ///< payload of all steps
  std::string counted_by;
  ByRank control;                                       ///< scalars and flags, on connections of their own
  ByRank peak;                                          ///< of the buffers of the schedule
  std::vector<std::vector<Bytes>> peak_by_category;     ///< measured, by rank and Category
  std::vector<std::vector<Bytes>> highest_by_category;  ///< the most of each category by itself, at whatever time
  std::vector<Bytes> high_water;     ///< as something outside counted it; of a process: pages, code and the trainer's own scratch included
  std::vector<PoolCheck> pools;      ///< of each rank, on devices
  std::vector<double> step_seconds;  ///< measured, by step: the slowest rank
  std::vector<double> reference_losses, losses;  ///< by step: mean over the global batch
  Closeness loss;
  Closeness gradient;                          ///< as the optimizer read it, relative to the largest element of its parameter
  std::vector<std::pair<int, int>> corrupted;  ///< (from, to): a checksum of what was received is not that of what was sent
  bool same_parameters = true;                 ///< all ranks computed with the same bits of every parameter

  [[nodiscard]] bool agree() const;
};

struct ExecutionOptions {
  int steps = 3;
  MeshOptions network{};
  struct Kill {
    int rank, step;
  };
  std::optional<Kill> kill{};  ///< of tests: that rank dies in that step
};

/// What of a job cannot be executed, as sentences; empty if it can.
[[nodiscard]] std::vector<std::string> cannot_execute(const Job& job);

/// `job.rank` is ignored: each of the `job.world_size` ranks runs the program of its own. Throws EnvironmentError when a rank dies
/// or cannot be reached.
[[nodiscard]] ExecutionResult execute_on(Platform& platform, const Job& job, const ExecutionOptions& options = {});
/// On N processes of this machine.
[[nodiscard]] ExecutionResult execute_local(const Job& job, const ExecutionOptions& options = {});

/// `schedule` on one stream: what backends make of it that finish each operation before the next.
[[nodiscard]] Schedule in_order(Schedule schedule);

/// Bytes that the rank of `schedule` sends in one step by the ring's segments: payload, and control.
struct PredictedBytes {
  Bytes payload, control;
};
[[nodiscard]] PredictedBytes predicted_bytes(const Schedule& schedule);

/// [Note: tolerance] Reference and ranks compute the same sums in different orders and round them at different places. With u the largest
/// unit roundoff of the dtypes in use (2^-9 for bf16, 2^-24 for fp32), a gradient is rounded about R = ranks + micro-batches + 4 times
/// (each hop, each accumulation, each copy and each product before it), and cancellation makes the sum up to 8 times smaller than its
/// terms: 8 R u of the parameter's largest element. The loss moves with the square of what moves the gradients: u of itself is enough. Both
/// grow by a tenth a step, as the runs drift apart. Runs of 1 to 4 ranks came to a quarter of this (bf16) and three quarters (fp32).
[[nodiscard]] double roundoff(const Training& training);
[[nodiscard]] double gradient_tolerance(const Training& training, std::int64_t ranks, int steps);
[[nodiscard]] double loss_tolerance(const Training& training, const std::vector<double>& losses, int steps);

}  // namespace shardsim::execute
