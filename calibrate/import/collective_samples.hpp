// SPDX-License-Identifier: Apache-2.0
// From single measurements of collectives to fits: one for each collective, group size, placement and algorithm.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "calibrate/import/nccl_tests.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

class CollectiveSamples {
 public:
  struct Group {
    Collective collective = Collective::all_reduce;
    std::int64_t ranks = 2, nodes = 1;
    std::string algorithm = "unknown", protocol = {};
    auto operator<=>(const Group&) const = default;
  };

  void add(const Group& group, Bytes size, Seconds time);
  /// All usable rows of a log. `source` names it in the origin.
  void add(const NcclTestsLog& log, const std::string& source);
  /// Where a group's measurements are from; several are joined.
  void note_origin(const Group& group, const std::string& origin);

  /// Minimum, median and p90 for each size, segments, leave-one-out errors.
  [[nodiscard]] std::vector<CollectiveFit> fits() const;

 private:
  struct Measurements {
    std::map<Bytes, std::vector<double>> times;
    std::vector<std::string> origins;
  };
  std::map<Group, Measurements> groups_;
};

/// What was imported, a line a fit: collective, group, sizes, how well sizes predict each other, and what of the base it replaces.
[[nodiscard]] std::vector<std::string> told(const Profile& base, const std::vector<CollectiveFit>& fits);

/// Fits that claim more than the links of the profile carry: both figures.
[[nodiscard]] std::vector<std::string> doubts(const Profile& profile, const std::vector<CollectiveFit>& fits);

/// `base` with `fits` in place of its own of the same collective, ranks, nodes and algorithm.
[[nodiscard]] Profile with_fits(Profile base, const std::vector<CollectiveFit>& fits);

}  // namespace shardsim
