// SPDX-License-Identifier: Apache-2.0
#include "reports/html/parts.hpp"

#include <fmt/format.h>

#include "reports/html/timeline_html.hpp"
#include "reports/names.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {

std::array<TimePart, 4> time_parts(const StepTime& step) {
  return {{{"compute", step.compute, "#0072B2"},
           {"exposed communication", step.exposed_communication, exposed_color},
           {"optimizer", step.optimizer, "#009E73"},
           {"waiting for the host", step.host_bound, "#999999"}}};
}

std::vector<MemoryPart> memory_parts(const Memory& memory) {
  std::vector<MemoryPart> parts;
  for (std::size_t i = 0; i < category_count; ++i)
    parts.push_back({display_name(static_cast<Category>(i)), memory.at_peak[i], series_color(i)});
  parts.push_back({"unused in the allocator", memory.reserved_peak - memory.peak, "#d0d7de"});
  parts.push_back({"outside the allocator", memory.overhead, "#57606a"});
  return parts;
}

HtmlSection assumed_section(const Assumptions& assumed, const std::vector<std::string>& more) {
  TextGrid grid{.header = {"Value", "From", "Step if a tenth worse", "Rests on it", "Measured by"},
                .right = {false, false, true, true, false},
                .rows = {}};
  for (const Assumption& a : assumed)
    grid.rows.push_back({fmt::format("{} ({})", a.value, a.key), a.origin, a.memory > Bytes{} ? "" : fmt::format("{:+.1f} %", 100 * a.time),
                         a.memory > Bytes{} ? to_text(a.memory) : "", a.measure});
  std::string text;
  for (const std::string& sentence : more) text += (text.empty() ? "" : "; ") + sentence;
  HtmlSection section{.title = "Assumed", .text = text.empty() ? "Not measured on this machine, the largest effect first." : text + "."};
  if (!grid.rows.empty()) section.tables.push_back(std::move(grid));
  return section;
}

}  // namespace shardsim
