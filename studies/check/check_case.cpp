// SPDX-License-Identifier: Apache-2.0
#include "studies/check/check_case.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/units_text.hpp"

namespace shardsim {

std::size_t failures(const CheckCases& cases) {
  return static_cast<std::size_t>(std::count_if(cases.begin(), cases.end(), [](const CheckCase& c) { return !c.ok(); }));
}

std::string figure_text(const Json& value) {
  if (const auto* integer = value.as<std::int64_t>()) return grouped(*integer);
  if (const auto* number = value.as<double>()) return fmt::format("{:.6g}", *number);
  if (const auto* text = value.as<std::string>()) return *text;
  return value.line();
}

}  // namespace shardsim
