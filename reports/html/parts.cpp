// SPDX-License-Identifier: Apache-2.0
#include "reports/html/parts.hpp"

#include "reports/html/html.hpp"
#include "reports/html/timeline_html.hpp"
#include "reports/names.hpp"

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

}  // namespace shardsim
