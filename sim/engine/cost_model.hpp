// SPDX-License-Identifier: Apache-2.0
// From work to time: what each op of a Schedule costs on a cluster.
#pragma once

#include <string>
#include <vector>

#include "sim/core/profile.hpp"
#include "sim/engine/engine.hpp"

namespace shardsim {

struct CollectiveTime {
  SimTime time;
  std::array<float, resource_count> share{};
  std::string algorithm;    ///< "ring", "nvls"
  std::string model;        ///< which model gave the time
  std::string bottleneck;   ///< "NVLink ring 370 GB/s", "8 NICs x 50.0 GB/s"
  bool extrapolated = false;
};

class CostModel {
 public:
  explicit CostModel(const Cluster& cluster);

  [[nodiscard]] Seconds product(const MatrixProduct& product, DType dtype) const;
  [[nodiscard]] Seconds work(const Work& work) const;
  /// `payload`: the full buffer.
  [[nodiscard]] CollectiveTime collective(Collective collective, Bytes payload, const Group& group) const;
  [[nodiscard]] Seconds copy(Bytes read, Bytes written, CopyPath path) const;

  /// Costs of all ops.
  [[nodiscard]] std::vector<OpCost> costs(const Schedule& schedule) const;
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }

 private:
  Cluster cluster_;
};

}  // namespace shardsim
