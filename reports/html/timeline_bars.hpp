// SPDX-License-Identifier: Apache-2.0
// The timeline as bars: one row for the host, one for each stream, one for exposed communication. What pages and pictures draw.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/result.hpp"

namespace shardsim {

/// What a bar stands for.
enum class BarKind : std::uint8_t { forward, backward, recompute, communication, copy, optimizer, host, exposed };
struct BarStyle {
  const char* label;
  const char* color;
};
inline constexpr const char* exposed_color = "#D32F2F";
inline constexpr std::array<BarStyle, 8> bar_styles{{{"forward", "#56B4E9"},
                                                     {"backward", "#0072B2"},
                                                     {"recomputation", "#8B5A2B"},
                                                     {"communication", "#E69F00"},
                                                     {"copies", "#CC79A7"},
                                                     {"optimizer", "#009E73"},
                                                     {"host", "#999999"},
                                                     {"exposed communication", exposed_color}}};
[[nodiscard]] constexpr const BarStyle& style_of(BarKind kind) { return bar_styles[static_cast<std::size_t>(kind)]; }

struct TimelineBar {
  std::size_t row;
  BarKind kind;
  SimTime begin, end;
  OpId op;        ///< the first; none for exposed communication
  int count = 1;  ///< operations that became this bar
};

/// "host", the streams by name, "exposed communication".
[[nodiscard]] std::vector<std::string> timeline_rows(const Schedule& schedule);

/// When a bar and the next of the same kind on the same row become one.
enum class Merge : std::uint8_t {
  near,       ///< less than `gap` apart
  same_unit,  ///< less than `gap` apart and of the same unit
};

/// By kind, then row, then time.
[[nodiscard]] std::vector<TimelineBar> timeline_bars(const SimulationResult& result, SimTime gap, Merge merge);

}  // namespace shardsim
