// SPDX-License-Identifier: Apache-2.0
// Gradients on their way to the CPU optimizer (offload_optimizer at stages 1 and 2).
// Source: DeepSpeed runtime/zero/stage_1_and_2.py ("CPU Offload Methods").
#pragma once

#include <vector>

#include "strategies/deepspeed/zero12.hpp"
#include "strategies/deepspeed/zero12_groups.hpp"

namespace shardsim {

class OffloadedGradients {
 public:
  /// Declares the host's gradient partitions, and a sum of every owned parameter where micro-batches accumulate. `owned`: parameters that
  /// touch this rank's partitions. Nothing is declared unless the job offloads.
  OffloadedGradients(Program& program, const Zero12Config& config, const FlatGroups& groups, const std::vector<ParameterId>& owned);

  /// copy_grads_in_partition under CPU offload: whole parameters accumulate in host memory, by way of the GPU; at the accumulation boundary
  /// the own slice goes to the host's partition. `tensor` holds the reduced gradient.
  void copy_grads_in_partition(BufferId tensor, ParameterId p, StreamId stream, std::int32_t micro_batch);

  /// Gradient partitions of the groups, in host memory.
  [[nodiscard]] const std::vector<BufferId>& partitions() const { return partitions_; }

 private:
  void accumulate(BufferId tensor, ParameterId p, StreamId stream, bool first);
  void set_norm_and_check_overflow(ParameterId p);
  void copy_slice(BufferId tensor, ParameterId p, StreamId stream);
  [[nodiscard]] UnitId unit(ParameterId p) { return program_.unit(p); }

  Program& program_;
  ScheduleBuilder& build_;
  const Zero12Config& config_;
  const FlatGroups& groups_;
  std::vector<BufferId> partitions_;  // by group
  std::vector<BufferId> sums_;        // by parameter
};

}  // namespace shardsim
