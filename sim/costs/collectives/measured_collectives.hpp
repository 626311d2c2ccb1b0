// SPDX-License-Identifier: Apache-2.0
// What measured collectives say of a group: its own times where it was measured, and what follows from other groups where it was not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/costs/collectives/collective_choice.hpp"
#include "sim/costs/collectives/collective_curve.hpp"

namespace shardsim {

/// Time of a collective over a group by what was measured.
struct MeasuredTime {
  CollectiveCurve curve;
  std::string model;  ///< "calibrated, 16 ranks on 2 nodes", "learnt from all_gather of 16 ranks on 2 nodes"
  std::string protocol;
  bool exact = false;        ///< this group, this collective, these links: the measurement itself
  bool other_group = false;  ///< nobody measured a group of this size: it says so
};

class MeasuredCollectives {
 public:
  /// `pinned`: the all-reduce algorithm that the scenario fixes.
  MeasuredCollectives(const Cluster& cluster, std::optional<Algorithm> pinned);

  /// The first of these that there is:
  ///   the fit of exactly this group, if the links are those it was measured on;
  ///   the same on other links (a scenario overrides a rate): latency and efficiency are kept;
  ///   the sister collectives of the group: all-gather, reduce-scatter and all-reduce teach each other;
  ///   other groups, of one node for one node and of several for several: between two sizes, or the nearest;
  /// where time is not measured itself, it is the closed form times measured / closed form of what was, by size; never below the
  /// narrowest cut that the bytes must cross.
  [[nodiscard]] std::optional<MeasuredTime> time(Collective collective, const RingPath& path) const;

  /// What a ring across nodes cannot beat: the same collective measured inside one node, whose fabric it passes, too. Seconds of a
  /// payload inside, times the factor for the longer ring.
  struct Inside {
    CollectiveCurve curve;
    double factor = 1;
  };
  [[nodiscard]] std::optional<Inside> inside_a_node(Collective collective, const RingPath& path) const;

 private:
  struct Source {
    const CollectiveFit* fit;
    double weight = 1;
  };
  using Sources = std::vector<Source>;

  [[nodiscard]] bool answers(const CollectiveFit& fit, Collective collective) const;
  [[nodiscard]] const CollectiveFit* exact(Collective collective, std::int64_t ranks, std::int64_t nodes) const;
  [[nodiscard]] Sources sisters(Collective collective, const Placement& placement) const;
  [[nodiscard]] Sources other_groups(Collective collective, const Placement& placement) const;
  [[nodiscard]] RingPath path_of(const CollectiveFit& fit) const;
  [[nodiscard]] CollectiveCurve curve_of(const CollectiveFit& fit, const RingPath& path) const;
  [[nodiscard]] CollectiveCurve learnt(Collective collective, const RingPath& path, const Sources& sources) const;
  [[nodiscard]] std::optional<Algorithm> pinned_for(const CollectiveFit& fit) const;

  std::vector<CollectiveFit> fits_;
  Cluster measured_;  // as it was when they were measured; its nodes are those of the fit in question
  std::optional<Algorithm> pinned_;
};

}  // namespace shardsim
