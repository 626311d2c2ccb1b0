// SPDX-License-Identifier: Apache-2.0
// Which model answers for a collective: what was measured comes first, closed forms last. The one interface to all of them.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "sim/costs/collectives/collective_algorithm.hpp"
#include "sim/costs/collectives/collective_curve.hpp"
#include "sim/costs/collectives/collective_models.hpp"
#include "sim/costs/collectives/collective_placement.hpp"
#include "sim/costs/op_cost.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

/// The predicted cost of one collective.
struct CollectiveCost {
  SimTime time;
  std::array<float, resource_count> share{};  ///< busy part of each resource while it runs alone
};

/// The same, and what stands behind the figure.
struct CollectiveTime : CollectiveCost {
  Bytes sent_per_rank;               ///< by the average rank, rounded up
  Bytes fabric_bytes;                ///< that each GPU's link inside the node carries
  Bytes network_bytes;               ///< that leave each node
  std::int32_t multiprocessors = 0;  ///< taken from compute meanwhile: NCCL runs a thread block for each channel
  Algorithm way = Algorithm::ring;
  std::string algorithm;      ///< "ring", "tree", "nvls", "hierarchical", "chain", "pairwise" (all-to-all)
  std::string protocol;       ///< "simple", "ll", "ll128" where a measurement or the tuner says so; else empty
  std::string model;          ///< which model gave the time: "calibrated, 8 ranks on 1 node", "ring alpha-beta, 64 ranks on 8 nodes"
  std::string bottleneck;     ///< "ring inside the node, 367 GB/s", "8 NICs x 50.0 GB/s"
  std::string link;           ///< of the cluster's graph: "node0.nic0 to leaf0"
  bool extrapolated = false;  ///< larger than anything measured
};

class CollectivePredictor {
 public:
  explicit CollectivePredictor(const Cluster& cluster);

  /// `payload`: the full buffer. In this order: the fit measured at exactly this group; reduce-scatter and all-gather fits for a ring
  /// all-reduce; interpolation in log(ranks) between group sizes measured inside a node; the closed form (with all_reduce_algorithm: auto,
  /// NCCL's tuner). A measurement that claims more than the wire carries is another network's and is passed over.
  [[nodiscard]] CollectiveTime predict(Collective collective, Bytes payload, const Group& group) const;
  /// The cost alone: replays ask for it thousands of times, and texts would take most of that.
  [[nodiscard]] CollectiveCost cost(Collective collective, Bytes payload, const Group& group) const;
  /// Which way the call goes, for the account of its bytes.
  [[nodiscard]] Chosen choose(Collective collective, Bytes payload, const Group& group) const;

 private:
  struct Curve {
    Collective collective;
    std::int64_t ranks, nodes;
    std::string algorithm, protocol;
    CollectiveCurve curve;
  };
  enum class Source : std::uint8_t { exact, by_halves, between_sizes, tuner, stepwise, closed_form };
  /// A time taken from measurements.
  struct Measured {
    Seconds time;
    Source source;
    const Curve* first;   ///< the reduce-scatter's; that of fewer ranks
    const Curve* second;  ///< the all-gather's; that of more ranks
    bool extrapolated;
  };
  struct Call {
    Collective collective;
    Bytes payload;
    Algorithm way;
    std::string_view protocol;  ///< the tuner's choice; else empty
    const RingPath& path;
  };
  struct Timed {
    Call call;
    ClosedForm form;
    Seconds time;
    std::optional<Measured> measured;
  };

  [[nodiscard]] const RingPath& path_of(Collective collective, const Group& group) const;
  [[nodiscard]] Call call(Collective collective, Bytes payload, const RingPath& path) const;
  [[nodiscard]] bool prefers_tree(const Call& call, const ClosedForm& ring) const;
  [[nodiscard]] const Curve* find(Collective collective, const Placement& placement, Algorithm way) const;
  [[nodiscard]] std::optional<Measured> measured(const Call& call, Seconds wire) const;
  [[nodiscard]] std::optional<Measured> exact(const Call& call) const;
  [[nodiscard]] std::optional<Measured> by_halves(const Call& call) const;
  [[nodiscard]] std::optional<Measured> between_sizes(const Call& call) const;
  [[nodiscard]] ClosedForm load(const Call& call) const;
  [[nodiscard]] Timed timed(Collective collective, Bytes payload, const RingPath& path) const;
  [[nodiscard]] Source model_for(const Call& call) const;
  [[nodiscard]] Seconds modelled(const Call& call, const ClosedForm& form) const;
  static void describe(const Call& call, const Measured& measured, CollectiveTime& out);
  void describe_model(const Call& call, CollectiveTime& out) const;

  Cluster cluster_;
  std::vector<Curve> curves_;
  // Rings are embedded once for each shape of a group; sweeps may ask from several threads.
  mutable std::map<std::tuple<std::int64_t, std::int64_t, bool>, RingPath> paths_;
  mutable std::mutex mutex_;
};

}  // namespace shardsim
