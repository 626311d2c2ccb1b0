// SPDX-License-Identifier: Apache-2.0
// What every report says at its end.
#include "reports/assumed.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "reports/text.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

constexpr std::size_t most_lines = 12;  // the rest is in the JSON

std::string effect(const Assumption& a) {
  if (a.memory > Bytes{}) return to_text(a.memory);
  return a.time < 0.0005 ? "no effect" : fmt::format("{:+.1f} %", 100 * a.time);
}

/// "published: vendor data sheet" is told by its first word.
std::string origin_kind(const std::string& origin) { return origin.empty() ? "default" : origin.substr(0, origin.find(':')); }

}  // namespace

std::string assumed_text(const Assumptions& assumed, const std::vector<std::string>& more) {
  if (assumed.empty() && more.empty()) return {};
  std::string out = "\nAssumed, not measured on this machine (effect on the step if a tenth worse)\n";
  for (std::size_t i = 0; i < std::min(assumed.size(), most_lines); ++i) {
    const Assumption& a = assumed[i];
    out += beside("  " + pad_left(effect(a), 10) + "  ", fmt::format("{} ({}: {})", a.value, a.key, origin_kind(a.origin)), 14) + "\n";
  }
  if (assumed.size() > most_lines) out += fmt::format("  {:>10}  {} more in --format json\n", "", assumed.size() - most_lines);
  for (const std::string& text : more) out += "  - " + wrapped(text, 4, 4) + "\n";
  std::vector<std::string> commands;
  for (const Assumption& a : assumed)
    if (std::find(commands.begin(), commands.end(), a.measure) == commands.end()) commands.push_back(a.measure);
  for (std::size_t i = 0; i < std::min<std::size_t>(commands.size(), 3); ++i) out += "  measure: " + wrapped(commands[i], 11, 11) + "\n";
  return out;
}

std::string warnings_text(const std::vector<std::string>& warnings) {
  std::string out;
  for (const std::string& warning : warnings) out += "  - " + wrapped(warning, 4, 4) + "\n";
  return out.empty() ? out : "\nWarnings\n" + out;
}

}  // namespace shardsim
