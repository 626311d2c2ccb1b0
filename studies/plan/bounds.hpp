// SPDX-License-Identifier: Apache-2.0
// What a candidate's step takes at least, known without emitting its schedule.
#pragma once

#include <map>
#include <optional>
#include <tuple>

#include "studies/plan/candidate.hpp"

namespace shardsim {

/// Never above what the simulation will say.
struct LowerBound {
  Seconds time;  ///< of a step
  Bytes memory;  ///< on the device
};

/// Time: every strategy runs the modules of the model, one after the other, on the compute stream, so the sum of their kernels is a lower
/// bound. Memory: at the end of forward every tensor that backward needs is alive under any strategy, beside the least that the
/// strategy holds of parameters and optimizer states.
class LowerBounds {
 public:
  explicit LowerBounds(const Scenario& base) : base_(base) {}
  [[nodiscard]] LowerBound operator()(const Candidate& candidate);

 private:
  /// What depends on the micro-batch and the checkpointing alone.
  struct Share {
    Seconds micro_batch;
    Bytes activations;
  };
  const Share& share(const Candidate& candidate);
  [[nodiscard]] Bytes states(const Candidate& candidate) const;

  const Scenario& base_;
  std::map<std::tuple<std::int64_t, std::string, std::string>, Share> shares_;  // by micro-batch, checkpointing and stack
};

}  // namespace shardsim
