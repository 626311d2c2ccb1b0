// SPDX-License-Identifier: Apache-2.0
// When each op of a Schedule ran, on its stream and on the host.
#pragma once

#include <vector>

#include "sim/base/ids.hpp"
#include "sim/base/units.hpp"

namespace shardsim {

/// One op's run on its stream.
struct Slice {
  OpId op;
  StreamId stream;
  SimTime begin, end;
};

struct HostSlice {
  OpId op;
  SimTime begin, end;
};

struct Timeline {
  std::vector<Slice> slices;    ///< by begin, then op
  std::vector<HostSlice> host;  ///< when the host issued, or waited for, what; ops that took it no time are left out
  SimTime end;
};

}  // namespace shardsim
