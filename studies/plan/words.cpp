// SPDX-License-Identifier: Apache-2.0
#include "studies/plan/words.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

constexpr double day = 86400, year = 365.25;

/// Three significant digits, never in powers of ten below a thousand.
std::string three_digits(double number) { return fmt::format("{:.{}f}", number, number < 9.995 ? 2 : number < 99.95 ? 1 : 0); }

}  // namespace

std::string gpus_text(std::int64_t gpus) { return grouped(gpus) + (gpus == 1 ? " GPU" : " GPUs"); }

std::string tokens_text(double tokens) {
  constexpr std::array<std::pair<double, const char*>, 3> scales{{{1e12, "trillion"}, {1e9, "billion"}, {1e6, "million"}}};
  for (const auto& [scale, name] : scales) {
    if (tokens < scale * 0.9995) continue;
    const double number = tokens / scale;
    const bool round = std::abs(number - std::round(number)) < 1e-9 * number;
    return fmt::format("{} {} tokens", round || number >= 999.5 ? whole_text(number) : three_digits(number), name);
  }
  return whole_text(tokens) + (tokens < 1.5 ? " token" : " tokens");
}

std::string percent_text(double share) { return fmt::format("{:.{}f} %", share * 100, share < 0.1 ? 1 : 0); }

std::string wall_text(Seconds wall) {
  const double days = wall.base() / day;
  if (days < 2) return to_text(wall);
  if (days < 2 * year) return days_text(wall) + " days";
  return fmt::format("{} days ({} years)", whole_text(days),
                     days < 100 * year ? fmt::format("{:.1f}", days / year) : whole_text(days / year));
}

std::string days_text(Seconds wall) {
  const double days = wall.base() / day;
  if (days >= 999.5) return whole_text(days);
  return days < 0.095 ? fmt::format("{:.2g}", days) : fmt::format("{:.{}f}", days, days < 9.95 ? 2 : 1);
}

std::string whole_text(double number) { return grouped(static_cast<std::int64_t>(std::min(number, 9e18) + 0.5)); }

}  // namespace shardsim
