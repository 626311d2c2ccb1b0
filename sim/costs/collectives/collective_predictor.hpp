// SPDX-License-Identifier: Apache-2.0
// Time, load and description of a collective: what was measured comes first, closed forms last. The one interface to all of them.
#pragma once

#include <array>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

#include "sim/costs/collectives/collective_algorithm.hpp"
#include "sim/costs/collectives/collective_choice.hpp"
#include "sim/costs/collectives/collective_placement.hpp"
#include "sim/costs/collectives/measured_collectives.hpp"
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
  std::string protocol;       ///< "simple", "ll", "ll128" where a measurement or the model says so; else empty
  std::string model;          ///< which model gave the time: "calibrated, 8 ranks on 1 node", "ring alpha-beta, 64 ranks on 8 nodes"
  std::string bottleneck;     ///< "ring inside the node, 367 GB/s", "8 NICs x 50.0 GB/s"
  std::string link;           ///< of the cluster's graph: "node0.nic0 to leaf0"
  bool extrapolated = false;  ///< larger than anything measured, or a group of another size than those measured
  std::string doubt;          ///< a measurement that claims more than the links carry: both figures; else empty
};

class CollectivePredictor {
 public:
  explicit CollectivePredictor(const Cluster& cluster);

  /// `payload`: the full buffer. By what was measured (measured_collectives.hpp), else by the closed form of the algorithm in use.
  [[nodiscard]] CollectiveTime predict(Collective collective, Bytes payload, const Group& group) const;
  /// The cost alone: replays ask for it thousands of times, and texts would take most of that.
  [[nodiscard]] CollectiveCost cost(Collective collective, Bytes payload, const Group& group) const;
  /// Which way the call goes, for the account of its bytes. Under `library` bytes are counted as a ring's (a tree's sum is the same): the
  /// convention of papers and profilers, whatever the switch does; `auto` and pinned algorithms count their own.
  [[nodiscard]] Chosen choose(Collective collective, Bytes payload, const Group& group) const;

 private:
  /// All that holds for a collective over a group, whatever its size.
  struct Basis {
    RingPath path;
    std::optional<MeasuredTime> measured;
    std::optional<MeasuredCollectives::Inside> inside;
  };

  [[nodiscard]] const Basis& basis_of(Collective collective, const Group& group) const;
  [[nodiscard]] Route route(Collective collective, Bytes payload, const Basis& basis) const;
  [[nodiscard]] static Seconds time_of(const Route& route, Bytes payload, const Basis& basis);
  void describe(Collective collective, Bytes payload, const Basis& basis, const Route& route, CollectiveTime& out) const;

  Cluster cluster_;
  std::optional<Algorithm> pinned_;
  MeasuredCollectives measured_;
  // Made once for each shape of a group; sweeps may ask from several threads.
  mutable std::map<std::tuple<Collective, std::int64_t, std::int64_t>, Basis> bases_;
  mutable std::mutex mutex_;
};

}  // namespace shardsim
