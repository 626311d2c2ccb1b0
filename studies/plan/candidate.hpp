// SPDX-License-Identifier: Apache-2.0
// One way to run the job: what a plan chooses between.
#pragma once

#include <string>
#include <vector>

#include "scenarios/reader/scenario.hpp"
#include "sim/engine/result.hpp"
#include "studies/plan/request.hpp"

namespace shardsim {

struct Candidate {
  std::int64_t nodes = 1, gpus_per_node = 8;
  std::string strategy;
  std::vector<std::string> options;    ///< beyond the scenario's or the library's: "replicate=4"
  std::string checkpointing = "none";  ///< value of training.activation_checkpointing
  std::string offload = "none";        ///< value of training.offload
  std::int64_t micro_batch = 1;
  std::int64_t accumulation = 1;

  [[nodiscard]] std::int64_t gpus() const { return nodes * gpus_per_node; }
  /// "fsdp2 (replicate=4), full checkpointing, micro-batch 2 x 4".
  [[nodiscard]] std::string text() const;
};

/// Every combination that the request allows and that gives its global batch exactly. Whether the library accepts it is not checked.
[[nodiscard]] std::vector<Candidate> candidates(const Scenario& base, const PlanRequest& request);

/// Numbers of GPUs that the request allows and for which there is no candidate, with the reason: "7 sequences do not divide among 2, 4
/// GPUs".
[[nodiscard]] std::vector<std::string> left_out(const Scenario& base, const PlanRequest& request);

/// What --set takes to make `candidate` of the scenario: what the scenario says already is left out.
[[nodiscard]] std::vector<std::string> assignments_of(const Scenario& base, const Candidate& candidate);

/// The base scenario as `candidate` says; problems where the library forbids it.
[[nodiscard]] Result<Scenario> scenario_of(const Scenario& base, const Candidate& candidate);

/// Many micro-batches are alike: beyond `exact_micro_batches` a step is simulated at two lengths and continued on the line through them.
inline constexpr std::int64_t exact_micro_batches = 8;

/// The simulated step of a candidate (without its schedule); nothing where it cannot run.
[[nodiscard]] std::optional<SimulationResult> simulate_candidate(const Scenario& base, const Candidate& candidate);

/// `first` and `second` are steps of a and b micro-batches; the step of g > b of them.
[[nodiscard]] SimulationResult extrapolated(const SimulationResult& first, const SimulationResult& second, std::int64_t a, std::int64_t b,
                                            std::int64_t g);

}  // namespace shardsim
