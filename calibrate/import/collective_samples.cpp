// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/collective_samples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/fit/segment_fit.hpp"
#include "calibrate/fit/statistics.hpp"
#include "sim/base/units_text.hpp"
#include "sim/costs/collectives/collective_curve.hpp"
#include "sim/costs/collectives/collective_predictor.hpp"

namespace shardsim {
namespace {

std::string origin_of(const NcclTestsTable& table, const std::string& source) {
  std::string origin = "measured: nccl-tests, " + source;
  if (!table.gpu.empty()) origin += ", " + table.gpu;
  if (!table.nccl_version.empty()) origin += ", NCCL " + table.nccl_version;
  for (const std::string& assumption : table.assumptions) origin += "; " + assumption;
  if (table.one_device) origin += "; all ranks on one GPU: times are not those of a fabric";
  if (!table.consistent) origin += "; inconsistent: printed bandwidths do not follow from size and time";
  return origin;
}

/// Times as logs print them: no log has more than a ten-thousandth of a microsecond, and the arithmetic of medians leaves no tail.
Seconds printed(double seconds) { return microseconds(std::round(seconds * 1e10) / 1e4); }

}  // namespace

void CollectiveSamples::add(const Group& group, Bytes size, Seconds time) { groups_[group].times[size].push_back(time.base()); }

void CollectiveSamples::add(const NcclTestsLog& log, const std::string& source) {
  for (const NcclTestsTable& table : log.tables) {
    const Group group{*table.collective, table.ranks, table.nodes, table.algorithm, table.protocol};
    bool any = false;
    for (const NcclTestsRow& row : table.rows) {
      if (!usable(table, row)) continue;
      add(group, row.size, *time_of(row));
      any = true;
    }
    if (any) note_origin(group, origin_of(table, source));
  }
}

void CollectiveSamples::note_origin(const Group& group, const std::string& origin) {
  auto& origins = groups_[group].origins;
  if (std::ranges::find(origins, origin) == origins.end()) origins.push_back(origin);
}

std::vector<CollectiveFit> CollectiveSamples::fits() const {
  std::vector<CollectiveFit> fits;
  for (const auto& [group, measurements] : groups_) {
    CollectiveFit fit;
    fit.collective = group.collective;
    fit.ranks = group.ranks;
    fit.nodes = group.nodes;
    fit.algorithm = group.algorithm;
    fit.protocol = group.protocol;
    fit.origin = fmt::format("{}", fmt::join(measurements.origins, " | "));
    for (const auto& [size, times] : measurements.times)
      fit.samples.push_back({size, printed(std::ranges::min(times)), printed(median(times)), printed(percentile(times, 0.9)),
                             static_cast<std::int32_t>(times.size())});
    fit_curve(fit);
    fit.segments = rounded(std::move(fit.segments));
    for (auto* error : {&fit.leave_one_out_median, &fit.leave_one_out_p90})
      if (*error) *error = std::round(**error * 1e4) / 1e4;
    fits.push_back(std::move(fit));
  }
  return fits;
}

namespace {

bool replaces(const CollectiveFit& fit, const CollectiveFit& old) {
  return fit.collective == old.collective && fit.ranks == old.ranks && fit.nodes == old.nodes &&
         (fit.algorithm == old.algorithm || fit.algorithm == "unknown");
}

}  // namespace

std::vector<std::string> told(const Profile& base, const std::vector<CollectiveFit>& fits) {
  std::vector<std::string> lines;
  for (const CollectiveFit& fit : fits) {
    std::string line = fmt::format("{}, {} ranks on {} node{}", name_of(fit.collective), fit.ranks, fit.nodes, fit.nodes == 1 ? "" : "s");
    if (fit.algorithm != "unknown") line += ", " + fit.algorithm;
    const Bytes largest = fit.samples.empty() ? fit.largest : fit.samples.back().size;
    const Seconds time = fit.samples.empty() ? time_of(fit.segments, largest) : fit.samples.back().median;
    if (!fit.samples.empty())
      line += fmt::format(": {} sizes from {} to {}", fit.samples.size(), to_text(fit.samples.front().size), to_text(largest));
    line += fmt::format(", bus bandwidth {} at {}", to_text(ByteRate{bus_factor(fit.collective, fit.ranks) * (largest / time).base()}),
                        to_text(largest));
    if (fit.leave_one_out_median)
      line += fmt::format(", each size is predicted from the others within {:.1f} % (median)", 100 * *fit.leave_one_out_median);
    const auto old = std::ranges::count_if(base.collectives, [&](const CollectiveFit& o) { return replaces(fit, o); });
    if (old > 0) line += "; replaces the base's";
    lines.push_back(std::move(line));
  }
  return lines;
}

std::vector<std::string> doubts(const Profile& profile, const std::vector<CollectiveFit>& fits) {
  std::vector<std::string> lines;
  if (profile.node.ring_bandwidth <= ByteRate{} || profile.network.nic_bandwidth <= ByteRate{}) return lines;
  for (const CollectiveFit& fit : fits) {
    Cluster cluster{profile, fit.nodes, ceil_div(fit.ranks, fit.nodes), profile.network.nics_per_node};
    const Bytes largest = fit.samples.empty() ? fit.largest : fit.samples.back().size;
    const CollectiveTime time = CollectivePredictor(cluster).predict(fit.collective, largest, {"measured", fit.ranks, 1});
    if (!time.doubt.empty())
      lines.push_back(
          fmt::format("{} of {} ranks on {} nodes, {}: {}", name_of(fit.collective), fit.ranks, fit.nodes, to_text(largest), time.doubt));
  }
  return lines;
}

Profile with_fits(Profile base, const std::vector<CollectiveFit>& fits) {
  const auto replaced = [&](const CollectiveFit& old) {
    return std::ranges::any_of(fits, [&](const CollectiveFit& fit) { return replaces(fit, old); });
  };
  std::erase_if(base.collectives, replaced);
  base.collectives.insert(base.collectives.end(), fits.begin(), fits.end());
  return base;
}

}  // namespace shardsim
