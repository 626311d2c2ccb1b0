// SPDX-License-Identifier: Apache-2.0
// From work to time: what each op of a Schedule costs on a cluster with a software stack. Every class of kernels has a price of its own
// (products, attention, memory-bound, optimizer), and so have the host, the links and the collectives.
#pragma once

#include <vector>

#include "sim/costs/attention.hpp"
#include "sim/costs/collectives/collective_predictor.hpp"
#include "sim/costs/host.hpp"
#include "sim/costs/op_cost.hpp"
#include "sim/costs/products.hpp"
#include "sim/machine/profile.hpp"
#include "sim/machine/stack.hpp"
#include "sim/schedule/replay_program.hpp"

namespace shardsim {

class CostModel {
 public:
  /// Without a stack nothing costs but the machine.
  explicit CostModel(const Cluster& cluster, const Stack& stack = {});

  [[nodiscard]] Seconds product(const MatrixProduct& product, DType dtype) const;
  /// Device time of a run of kernels of a model: products, attention, memory-bound bytes, and a gap for each kernel. Of a mean rank alone.
  [[nodiscard]] Seconds work(const Work& work) const;
  /// The same for the kernels of an optimizer.
  [[nodiscard]] Seconds optimizer_work(const Work& work) const;
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
  [[nodiscard]] const HostCosts& host() const { return host_; }

  [[nodiscard]] OpCost cost(const Op& op, const Schedule& schedule) const;
  /// By class of ops.
  [[nodiscard]] std::vector<OpCost> prices(const ReplayProgram& program) const;
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  [[nodiscard]] const Stack& stack() const { return stack_; }

 private:
  [[nodiscard]] Seconds memory_bound(Bytes touched) const;
  [[nodiscard]] Seconds products_and_attention(const Work& work) const;

  Cluster cluster_;
  Stack stack_;
  GemmPredictor products_;
  AttentionPredictor attention_;
  CollectivePredictor collectives_;
  HostCosts host_;
};

}  // namespace shardsim
