// SPDX-License-Identifier: Apache-2.0
// What values of a machine can be. A value beyond these is a slip (a dropped G, a percentage for a share): a step from it would mean
// nothing. Each kind of value has one range, from far below the slowest machine that trains anything to far above what anybody sells.
#pragma once

#include <fmt/format.h>

#include "sim/base/units_text.hpp"
#include "sim/config/node.hpp"

namespace shardsim {

template <class Q>
struct Range {
  Q least, most;
};

namespace ranges {
inline constexpr Range<ByteRate> bandwidth{ByteRate{1e5}, ByteRate{1e15}};
inline constexpr Range<ByteRate> algbw{ByteRate{1}, ByteRate{1e24}};  ///< of a segment: where a curve is flat, size over time means little
inline constexpr Range<FlopRate> peak{FlopRate{1e6}, FlopRate{1e19}};
inline constexpr Range<Seconds> latency{Seconds{}, Seconds{1}};
inline constexpr Range<Seconds> measured{Seconds{1e-12}, Seconds{86400}};  ///< a time that somebody took
inline constexpr Range<double> efficiency{1e-3, 1};
inline constexpr Range<Bytes> memory{Bytes{1}, Bytes{std::int64_t{1} << 55}};
inline constexpr Range<Bytes> overhead{Bytes{}, Bytes{std::int64_t{1} << 45}};
}  // namespace ranges

/// Adds a problem at `node` where `value` is outside of its range.
template <class Q>
bool within(const ConfigNode& node, std::string_view what, Q value, const Range<Q>& range, Problems& problems) {
  if (value >= range.least && value <= range.most) return true;
  problems.add(node.where,
               fmt::format("{} must be from {} to {}, not {}", what, to_text(range.least), to_text(range.most), to_text(value)));
  return false;
}

}  // namespace shardsim
