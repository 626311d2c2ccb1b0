// SPDX-License-Identifier: Apache-2.0
// Where the time of a replayed step went.
#pragma once

#include "sim/engine/engine.hpp"

namespace shardsim {

/// At every instant a step does the first of these that applies; together they are the whole of it.
struct TimeSplit {
  SimTime compute;    ///< a kernel of forward, backward or a copy on the device runs
  SimTime optimizer;  ///< an Update runs, on the device or on the host
  SimTime exposed;    ///< a collective runs
  SimTime link;       ///< a copy between device and host runs
  SimTime idle;       ///< nothing runs: the host has not issued it yet
  // And how long each was at work, beside others or not.
  SimTime communication;  ///< sum over collectives
  SimTime kernels_busy, communication_busy, link_busy;
  SimTime host_busy;        ///< issuing, not waiting
  SimTime host_updates;     ///< the part of host_busy that CPU optimizers take
  OpId longest_collective;  ///< on the communicator that runs longest; none if there is no collective
};

[[nodiscard]] TimeSplit split_time(const RankProgram& program, const Timeline& timeline);

}  // namespace shardsim
