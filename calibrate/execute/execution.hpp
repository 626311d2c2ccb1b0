// SPDX-License-Identifier: Apache-2.0
// Runs a job on real memory and a real network, and sets what was measured beside what was predicted.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/execute/mesh.hpp"
#include "sim/core/problem.hpp"
#include "strategies/strategy.hpp"

namespace shardsim::execute {

/// One figure of every rank.
struct ByRank {
  std::vector<Bytes> predicted, measured;
  [[nodiscard]] bool equal() const { return predicted == measured; }
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
  ByRank sent;                                   ///< payload of all steps
  std::string counted_by;
  ByRank control;                                ///< scalars and flags, on connections of their own
  ByRank peak;                                   ///< of the buffers of the schedule
  std::vector<std::vector<Bytes>> peak_by_category;  ///< measured, by rank and Category
  std::vector<Bytes> high_water;                 ///< of each process (VmHWM): pages, code and the trainer's own scratch included
  std::vector<double> step_seconds;              ///< measured, by step: the slowest rank
  std::vector<double> reference_losses, losses;  ///< by step: mean over the global batch
  Closeness loss;
  Closeness gradient;                            ///< as the optimizer read it, relative to the largest element of its parameter

  [[nodiscard]] bool agree() const { return sent.equal() && control.equal() && peak.equal() && loss.within() && gradient.within(); }
};

struct ExecutionOptions {
  int steps = 3;
  MeshOptions network;
  struct Kill { int rank, step; };
  std::optional<Kill> kill;      ///< of tests: that rank dies in that step
};

/// What of a job cannot be executed, as sentences; empty if it can.
[[nodiscard]] std::vector<std::string> cannot_execute(const Job& job);

/// `job.rank` is ignored: each of the `job.world_size` processes runs the program of its own rank. Throws EnvironmentError when a rank dies
/// or cannot be reached.
[[nodiscard]] ExecutionResult execute_local(const Job& job, const ExecutionOptions& options = {});

/// Bytes that the rank of `schedule` sends in one step by the ring's segments: payload, and control.
struct PredictedBytes {
  Bytes payload, control;
};
[[nodiscard]] PredictedBytes predicted_bytes(const Schedule& schedule);

/// [Note: tolerance] Reference and ranks compute the same sums in different orders and round them at different places. One rounding of a
/// gradient in a dtype of unit roundoff u errs by at most u times its size; a gradient is rounded once for each micro-batch, hop and copy.
/// Terms of opposite sign make the sum smaller than its terms, which the factor allows for.
[[nodiscard]] double gradient_tolerance(const Training& training, std::int64_t ranks, int step);
[[nodiscard]] double loss_tolerance(const Training& training, std::int64_t ranks, int steps);

}  // namespace shardsim::execute
