// SPDX-License-Identifier: Apache-2.0
// Several strategies on one job: their results ranked, and the micro-batches at which the order changes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/reader/scenario.hpp"
#include "sim/engine/assumption.hpp"
#include "sim/engine/result.hpp"
#include "sim/memory/memory_explanation.hpp"

namespace shardsim {

struct NotRun {
  std::string strategy, why;
};

/// Below `micro_batch` sequences per rank `below` is faster, from there on `from`.
struct Crossover {
  std::string below, from;
  std::int64_t micro_batch = 1;
  std::int64_t tokens_per_gpu = 0;  ///< of one micro-batch
  bool fits = false;                ///< both fit into memory there
};

/// The single change that makes a strategy fit that would be worth it: it is the fastest, or nothing fits and it is the leanest.
struct Rescue {
  std::string strategy;
  MemoryChange change;
};

struct Comparison {
  std::vector<SimulationResult> results;  ///< fastest first
  std::vector<NotRun> not_run;
  std::vector<Crossover> crossovers;  ///< by micro-batch
  std::optional<Rescue> rescue;
  Assumptions assumed;  ///< of the scenario's own strategy, or of the fastest

  /// What simulate warns of, with the strategies that it concerns: "ddp, fsdp1: does not fit ...".
  [[nodiscard]] std::vector<std::string> warnings() const;
};

/// Simulates `base` under each of `names`, and again at micro-batches from 1 to `largest_micro_batch` to find the crossovers.
/// Differences of less than half a percent count as none.
[[nodiscard]] Comparison compare_strategies(const Scenario& base, const std::vector<std::string>& names,
                                            std::int64_t largest_micro_batch = 32);

}  // namespace shardsim
