// SPDX-License-Identifier: Apache-2.0
#include "calibrate/import/collective_samples.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "calibrate/fit/segment_fit.hpp"
#include "calibrate/fit/statistics.hpp"

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
      fit.samples.push_back({size, Seconds{std::ranges::min(times)}, Seconds{median(times)}, Seconds{percentile(times, 0.9)},
                             static_cast<std::int32_t>(times.size())});
    fit_curve(fit);
    fits.push_back(std::move(fit));
  }
  return fits;
}

Profile with_fits(Profile base, const std::vector<CollectiveFit>& fits) {
  const auto replaced = [&](const CollectiveFit& old) {
    return std::ranges::any_of(fits, [&](const CollectiveFit& fit) {
      return fit.collective == old.collective && fit.ranks == old.ranks && fit.nodes == old.nodes &&
             (fit.algorithm == old.algorithm || fit.algorithm == "unknown");
    });
  };
  std::erase_if(base.collectives, replaced);
  base.collectives.insert(base.collectives.end(), fits.begin(), fits.end());
  return base;
}

}  // namespace shardsim
