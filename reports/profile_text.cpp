// SPDX-License-Identifier: Apache-2.0
#include "reports/profile_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reports/profile_rows.hpp"
#include "reports/text.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

constexpr int plot_columns = 60, plot_rows = 12;
constexpr std::size_t most_columns_of_origin = 44;

/// Values with the start of their origins; `calibrate show` is for looking, the file holds the whole.
std::string machine_text(const Profile& profile) {
  TextGrid grid{.header = {"Value", "", "Origin"}, .right = {false, true, false}, .rows = {}};
  for (const ProfileValue& v : profile_values(profile)) {
    std::string origin = v.origin;
    if (columns(origin) > most_columns_of_origin) origin = origin.substr(0, most_columns_of_origin - 3) + "...";
    grid.rows.push_back({v.key, v.value, origin});
  }
  return grid.text();
}

std::string table_text(const std::vector<CurvePoint>& rows) {
  TextGrid grid{.header = {"Size", "Measured", "Fitted", "Error", "busbw GB/s"}, .right = {true, true, true, true, true}, .rows = {}};
  for (const CurvePoint& row : rows)
    grid.rows.push_back({to_text(row.size), row.measured ? to_text(*row.measured) : "", to_text(row.fitted),
                         row.measured ? fmt::format("{:+.1f} %", 100 * row.error()) : "", fmt::format("{:.4g}", row.bus_gigabytes)});
  return grid.text();
}

/// Bus bandwidth over the logarithm of the size: 'o' measured, '-' fitted, '@' both.
std::string plot_text(const CollectiveFit& fit, const std::vector<CurvePoint>& rows) {
  double top = 0;
  for (const CurvePoint& row : rows)
    top = std::max({top, bus_gigabytes(fit, row.size, row.fitted), row.measured ? bus_gigabytes(fit, row.size, *row.measured) : 0});
  const auto log_size = [](Bytes size) { return std::log2(static_cast<double>(size.value())); };
  const double left = log_size(rows.front().size), width = std::max(1e-9, log_size(rows.back().size) - left);
  std::array<std::string, plot_rows> lines;
  lines.fill(std::string(plot_columns, ' '));
  const auto put = [&](Bytes size, Seconds time, char mark) {
    const auto x = static_cast<std::size_t>(std::lround((log_size(size) - left) / width * (plot_columns - 1)));
    const auto y = static_cast<std::size_t>(std::lround(bus_gigabytes(fit, size, time) / top * (plot_rows - 1)));
    char& cell = lines[plot_rows - 1 - y][x];
    cell = cell == ' ' || cell == mark ? mark : '@';
  };
  for (const CurvePoint& row : rows) put(row.size, row.fitted, '-');
  for (const CurvePoint& row : rows)
    if (row.measured) put(row.size, *row.measured, 'o');
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double value = top * static_cast<double>(plot_rows - 1 - i) / (plot_rows - 1);
    std::string line = (i % 4 == 3 || i == 0 ? pad_left(fmt::format("{:.3g}", value), 8) : std::string(8, ' ')) + " |" + lines[i];
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  out += std::string(9, ' ') + "+" + std::string(plot_columns, '-') + "\n";
  const std::string first = to_text(rows.front().size), last = to_text(rows.back().size);
  out += std::string(10, ' ') + first + pad_left(last, plot_columns - columns(first)) + "\n";
  return out + "          GB/s of bus bandwidth: o measured, - fitted, @ both\n";
}

std::string segments_text(const CollectiveFit& fit) {
  std::string out;
  for (const CollectiveSegment& s : fit.segments) {
    // Latency alone, where size makes no difference.
    const bool flat = s.limit && *s.limit / s.algbw < s.alpha * 1e-4;
    out += fmt::format("  T = {}{}{}\n", to_text(s.alpha), flat ? "" : " + S / " + to_text(s.algbw),
                       s.limit ? " up to " + to_text(*s.limit) : "");
  }
  return out;
}

std::string collective_text(const CollectiveFit& fit) {
  std::string out = fit_title(fit) + "\n";
  if (!fit.origin.empty()) out += "  " + wrapped(fit.origin, 2, 2) + "\n";
  if (fit.leave_one_out_median && fit.leave_one_out_p90)
    out += fmt::format("  Leave-one-out error: median {}, 90 % of the sizes below {}\n", percentage(*fit.leave_one_out_median),
                       percentage(*fit.leave_one_out_p90));
  const std::vector<CurvePoint> rows = curve_points(fit);
  return out + segments_text(fit) + "\n" + table_text(rows) + "\n" + plot_text(fit, rows);
}

}  // namespace

std::string profile_text(const Profile& profile) {
  std::string out = profile.name.empty() ? profile.file : profile.name;
  if (!profile.description.empty()) out += ": " + wrapped(profile.description, 2, columns(out) + 2);
  out += "\n\n";
  if (!profile.gpu.name.empty())
    out += machine_text(profile);
  else
    out += "Collectives only: the machine itself is not described.\n";
  for (const CollectiveFit& fit : profile.collectives) out += "\n" + collective_text(fit);
  return out;
}

}  // namespace shardsim
