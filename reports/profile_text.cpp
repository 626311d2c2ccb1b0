// SPDX-License-Identifier: Apache-2.0
#include "reports/profile_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reports/text.hpp"
#include "sim/core/units_text.hpp"
#include "sim/engine/collective_curve.hpp"

namespace shardsim {
namespace {

constexpr int plot_columns = 60, plot_rows = 12;
constexpr std::size_t most_columns_of_origin = 44;

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

/// Rows of a section, each with the start of its origin; `calibrate show` is for looking, the file holds the whole.
class Values {
 public:
  explicit Values(const Profile& profile) : profile_(profile) {}
  void add(const std::string& key, const std::string& value) {
    std::string origin = origin_of(profile_, key);
    if (columns(origin) > most_columns_of_origin) origin = origin.substr(0, most_columns_of_origin - 3) + "...";
    grid_.rows.push_back({key, value, origin});
  }
  template <class Q>
  void known(const std::string& key, Q value) { if (value > Q{}) add(key, to_text(value)); }
  [[nodiscard]] std::string text() const { return grid_.text(); }

 private:
  const Profile& profile_;
  TextGrid grid_{.header = {"Value", "", "Origin"}, .right = {false, true, false}, .rows = {}};
};

std::string machine_text(const Profile& p) {
  Values values(p);
  if (!p.gpu.name.empty()) values.add("gpu.name", p.gpu.name);
  values.known("gpu.capacity", p.gpu.capacity);
  values.known("gpu.memory_bandwidth", p.gpu.memory_bandwidth);
  for (const auto& [type, rate] : p.gpu.peak) values.add(fmt::format("gpu.peak.{}", name_of(type)), to_text(rate));
  values.add("gpu.gemm.launch", to_text(p.gpu.gemm.launch));
  values.add("gpu.gemm.efficiency", fmt::format("{:.3g}", p.gpu.gemm.efficiency));
  values.add("gpu.gemm.memory_efficiency", fmt::format("{:.3g}", p.gpu.gemm.memory_efficiency));
  if (!p.gpu.gemm.table.empty()) values.add("gpu.gemm.table", fmt::format("{} shapes", p.gpu.gemm.table.size()));
  values.add("gpu.kernel_launch", to_text(p.gpu.kernel_launch));
  values.add("gpu.overlap_slowdown", fmt::format("{:.3g}", p.gpu.overlap_slowdown));
  values.known("gpu.host_link", p.gpu.host_link);
  values.add("node.gpus", std::to_string(p.node.gpus));
  values.known("node.ring_bandwidth", p.node.ring_bandwidth);
  values.known("node.intra_latency", p.node.intra_latency);
  values.known("node.host_memory_bandwidth", p.node.host_memory_bandwidth);
  values.add("network.nics_per_node", std::to_string(p.network.nics_per_node));
  values.known("network.nic_bandwidth", p.network.nic_bandwidth);
  values.known("network.inter_latency", p.network.inter_latency);
  if (p.price_per_gpu_hour) values.add("price_per_gpu_hour", fmt::format("${:.2f}", *p.price_per_gpu_hour));
  return values.text();
}

struct Row {
  Bytes size;
  std::optional<Seconds> measured;
  Seconds fitted;
};

std::vector<Row> rows_of(const CollectiveFit& fit) {
  std::vector<Row> rows;
  const auto fitted = [&](Bytes size) { return fit.segments.empty() ? CollectiveCurve(fit).at(size) : time_of(fit.segments, size); };
  for (const auto& sample : fit.samples) rows.push_back({sample.size, sample.median, fitted(sample.size)});
  if (rows.empty())
    for (Bytes size = kibibytes(1); size <= gibibytes(1); size = 4 * size) rows.push_back({size, std::nullopt, fitted(size)});
  return rows;
}

double bus_gigabytes(const CollectiveFit& fit, Bytes size, Seconds time) {
  return (size / time).base() / 1e9 * bus_factor(fit.collective, fit.ranks);
}

std::string table_text(const CollectiveFit& fit, const std::vector<Row>& rows) {
  TextGrid grid{.header = {"Size", "Measured", "Fitted", "Error", "busbw GB/s"}, .right = {true, true, true, true, true}, .rows = {}};
  for (const Row& row : rows) {
    const Seconds shown = row.measured.value_or(row.fitted);
    grid.rows.push_back({to_text(row.size), row.measured ? to_text(*row.measured) : "", to_text(row.fitted),
                         row.measured ? fmt::format("{:+.1f} %", 100 * (row.fitted / *row.measured - 1)) : "",
                         fmt::format("{:.4g}", bus_gigabytes(fit, row.size, shown))});
  }
  return grid.text();
}

/// Bus bandwidth over the logarithm of the size: 'o' measured, '-' fitted, '@' both.
std::string plot_text(const CollectiveFit& fit, const std::vector<Row>& rows) {
  double top = 0;
  for (const Row& row : rows) top = std::max({top, bus_gigabytes(fit, row.size, row.fitted), row.measured ? bus_gigabytes(fit, row.size, *row.measured) : 0});
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
  for (const Row& row : rows) put(row.size, row.fitted, '-');
  for (const Row& row : rows)
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
  for (const CollectiveSegment& s : fit.segments)
    out += fmt::format("  T = {} + S / {}{}\n", to_text(s.alpha), to_text(s.algbw), s.limit ? " up to " + to_text(*s.limit) : "");
  return out;
}

std::string collective_text(const CollectiveFit& fit) {
  std::string out = fmt::format("{}, {} ranks on {} node{}, {}{}\n", name_of(fit.collective), fit.ranks, fit.nodes, fit.nodes == 1 ? "" : "s",
                                fit.algorithm == "unknown" ? "algorithm not stated" : fit.algorithm, fit.protocol.empty() ? "" : " " + fit.protocol);
  if (!fit.origin.empty()) out += "  " + wrapped(fit.origin, 2, 2) + "\n";
  if (fit.leave_one_out_median && fit.leave_one_out_p90)
    out += fmt::format("  Leave-one-out error: median {}, 90 % of the sizes below {}\n", percent(*fit.leave_one_out_median), percent(*fit.leave_one_out_p90));
  const std::vector<Row> rows = rows_of(fit);
  return out + segments_text(fit) + "\n" + table_text(fit, rows) + "\n" + plot_text(fit, rows);
}

}  // namespace

std::string profile_text(const Profile& profile) {
  std::string out = profile.name.empty() ? profile.file : profile.name;
  if (!profile.description.empty()) out += ": " + wrapped(profile.description, 2, columns(out) + 2);
  out += "\n\n";
  if (!profile.gpu.name.empty()) out += machine_text(profile);
  else out += "Collectives only: the machine itself is not described.\n";
  for (const CollectiveFit& fit : profile.collectives) out += "\n" + collective_text(fit);
  return out;
}

}  // namespace shardsim
