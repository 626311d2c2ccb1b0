// SPDX-License-Identifier: Apache-2.0
// What a step's time and a device's memory consist of: the bars that several pages draw.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "reports/html/html.hpp"
#include "sim/engine/assumption.hpp"
#include "sim/engine/result.hpp"

namespace shardsim {

struct TimePart {
  const char* name;
  Seconds time;
  const char* color;
};
/// Compute, exposed communication, optimizer, waiting for the host: they add up to the step.
[[nodiscard]] std::array<TimePart, 4> time_parts(const StepTime& step);

struct MemoryPart {
  std::string name;
  Bytes bytes;
  std::string color;
};
/// Categories at the peak, what the allocator holds beyond them, and what lies outside of it: they add up to the peak on the device.
[[nodiscard]] std::vector<MemoryPart> memory_parts(const Memory& memory);

/// What a page's figures assume, the largest effect first; `more`: sentences of the question asked.
[[nodiscard]] HtmlSection assumed_section(const Assumptions& assumed, const std::vector<std::string>& more = {});

}  // namespace shardsim
