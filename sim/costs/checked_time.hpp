// SPDX-License-Identifier: Apache-2.0
// From the seconds of a cost to the engine's clock, which counts picoseconds in 64 bits.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "sim/base/problem.hpp"
#include "sim/base/units.hpp"

namespace shardsim {

/// The longest single operation: two days, so that thousands of them in a row are still far from the end of the clock.
inline constexpr Seconds longest_operation{2 * 86400.0};

/// A cost that is negative or not a number is a bug; one beyond the limit asks for more than is simulated (an InputError).
[[nodiscard]] inline SimTime checked_time(Seconds time) {
  if (!(time.base() >= 0)) throw std::logic_error(fmt::format("a cost of {} s", time.base()));
  if (time > longest_operation)
    throw InputError(fmt::format("one operation of the step would take {:.3g} days: more than {:.0f} are not simulated",
                                 time.base() / 86400, longest_operation.base() / 86400));
  return SimTime::from(time);
}

}  // namespace shardsim
