// SPDX-License-Identifier: Apache-2.0
// Which model answers for a collective: what was measured comes first, closed forms last.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/profile.hpp"
#include "sim/engine/collective_curve.hpp"
#include "sim/engine/collective_placement.hpp"
#include "sim/engine/engine.hpp"

namespace shardsim {

/// The predicted time of one collective, and what stands behind the figure.
struct CollectiveTime {
  SimTime time;
  std::array<float, resource_count> share{};  ///< busy part of each resource while it runs alone
  std::string algorithm;      ///< "ring", "tree" (small all-reduces across nodes: the same bytes in sum), "pairwise" (all-to-all)
  std::string protocol;       ///< "simple", "ll", "ll128" where a measurement says so; else empty
  std::string model;          ///< which model gave the time: "calibrated, 8 ranks on 1 node", "ring alpha-beta, 64 ranks on 8 nodes"
  std::string bottleneck;     ///< "ring inside the node, 367 GB/s", "8 NICs x 50.0 GB/s"
  bool extrapolated = false;  ///< larger than anything measured
};

class CollectivePredictor {
 public:
  explicit CollectivePredictor(const Cluster& cluster);

  /// `payload`: the full buffer. In this order: the fit measured at exactly this group; reduce-scatter and all-gather fits for an
  /// all-reduce; interpolation in log(ranks) between group sizes measured inside a node; the closed form.
  /// A measurement that claims more than the wire carries is another network's and is passed over.
  [[nodiscard]] CollectiveTime predict(Collective collective, Bytes payload, const Placement& placement) const;

 private:
  struct Curve {
    Collective collective;
    std::int64_t ranks, nodes;
    std::string algorithm, protocol;
    CollectiveCurve curve;
  };
  /// A time taken from measurements.
  struct Measured {
    Seconds time;
    std::string algorithm, protocol, model;
    bool extrapolated = false;
  };

  [[nodiscard]] const Curve* find(Collective collective, std::int64_t ranks, std::int64_t nodes) const;
  [[nodiscard]] std::optional<Measured> exact(Collective collective, Bytes payload, const Placement& placement) const;
  [[nodiscard]] std::optional<Measured> by_halves(Collective collective, Bytes payload, const Placement& placement) const;
  [[nodiscard]] std::optional<Measured> between_sizes(Collective collective, Bytes payload, const Placement& placement) const;

  Cluster cluster_;
  std::vector<Curve> curves_;
};

}  // namespace shardsim
