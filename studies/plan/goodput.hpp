// SPDX-License-Identifier: Apache-2.0
// How much of the machine's time becomes training: checkpoints, failures, lost work.
#pragma once

#include <optional>

#include "sim/base/units.hpp"

namespace shardsim {

struct Reliability {
  Seconds checkpoint;  ///< training stands still while a checkpoint is written (delta)
  Seconds restart;     ///< from a failure to the first new step (R)
  Seconds mtbf;        ///< mean time between failures of the whole job: a node's, divided by the nodes (M)
};

/// The interval between checkpoints that wastes the least: Daly, "A higher order estimate of the optimum checkpoint interval for restart
/// dumps" (2006), equation 37; its first term is Young's sqrt(2 delta M) (1974). At delta >= 2 M it is M.
[[nodiscard]] Seconds optimum_interval(const Reliability& job);

/// Share of wall time that is useful work with a checkpoint after each `interval` of it: Daly's equation 20,
/// interval / (M exp(R / M) (exp((interval + delta) / M) - 1)). Zero where the job cannot make progress.
[[nodiscard]] double goodput(const Reliability& job, Seconds interval);

}  // namespace shardsim
