// SPDX-License-Identifier: Apache-2.0
// From work to time: what each op of a Schedule costs on a cluster.
#pragma once

#include <vector>

#include "sim/costs/collectives/collective_predictor.hpp"
#include "sim/costs/gemm_predictor.hpp"
#include "sim/costs/op_cost.hpp"
#include "sim/machine/profile.hpp"
#include "sim/schedule/replay_program.hpp"

namespace shardsim {

class CostModel {
 public:
  explicit CostModel(const Cluster& cluster);

  [[nodiscard]] Seconds product(const MatrixProduct& product, DType dtype) const;
  /// Device time of a run of kernels: products, attention, memory-bound bytes, and a gap for each kernel.
  [[nodiscard]] Seconds work(const Work& work) const;
  /// `payload`: the full buffer.
  [[nodiscard]] CollectiveTime collective(Collective collective, Bytes payload, const Group& group) const;
  /// The same without what stands behind it.
  [[nodiscard]] CollectiveCost collective_cost(Collective collective, Bytes payload, const Group& group) const;
  /// The algorithm that the call takes, for the account of its bytes.
  [[nodiscard]] Chosen choose(Collective collective, Bytes payload, const Group& group) const;
  /// On the device: everything read and written crosses HBM. To or from the host: the larger side crosses the host link.
  [[nodiscard]] Seconds copy(Bytes read, Bytes written, CopyPath path) const;
  /// One rank's share of the node's DRAM: CPU optimizers.
  [[nodiscard]] Seconds host_memory(Bytes touched) const;

  [[nodiscard]] OpCost cost(const Op& op, const Schedule& schedule) const;
  /// By class of ops.
  [[nodiscard]] std::vector<OpCost> prices(const ReplayProgram& program) const;
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }

 private:
  [[nodiscard]] Seconds memory_bound(Bytes touched) const;

  Cluster cluster_;
  GemmPredictor gemm_;
  CollectivePredictor collectives_;
};

}  // namespace shardsim
