// SPDX-License-Identifier: Apache-2.0
// Sub-groups of DeepSpeed ZeRO-3: what of the gradients, master weights and states this rank keeps, and the step, one sub-group after
// another. Source: deepspeed/runtime/zero/stage3.py.
#pragma once

#include <functional>
#include <vector>

#include "strategies/deepspeed/parameter_coordinator.hpp"
#include "strategies/shared/optimizer_step.hpp"

namespace shardsim {

class Zero3SubGroups {
 public:
  Zero3SubGroups(Program& program, const Zero3Config& config, const Zero3Partitions& groups);

  /// grad_partitions_flat_buffer (one for each process group), and where a parameter's partition starts in it.
  [[nodiscard]] BufferId partitions(ParameterId p) const { return groups_.experts().expert(p) ? expert_partitions_ : partitions_; }
  [[nodiscard]] Elements place(ParameterId p) const { return place_[static_cast<std::size_t>(p.index)]; }

  /// Overflow check, norms, and one optimizer step for each sub-group. `shard`: the 16-bit partition of a parameter.
  void step(const std::function<BufferId(ParameterId)>& shard);

 private:
  struct SubGroup {
    UnitId name{};
    std::vector<ParameterId> parameters{};
    Elements count{}, largest{};  ///< of the partitions
    BufferId master{};            ///< fp32_partitioned_groups_flat
  };

  void add_sub_groups(const std::vector<ParameterId>& parameters);
  void declare(SubGroup& group);
  [[nodiscard]] BufferId declare_partitions(const std::vector<ParameterId>& parameters);
  [[nodiscard]] LayoutId each(const std::vector<ParameterId>& parameters) const;
  [[nodiscard]] Elements partition(ParameterId p) const;
  [[nodiscard]] bool offload() const { return program_.training().offload.optimizer != OffloadTarget::none; }
  void check_overflow();
  void reduce_norm(const SubGroup& group);
  [[nodiscard]] BufferId prepare_gradient(const SubGroup& group);
  [[nodiscard]] BufferId flatten(const SubGroup& group);
  void step_sub_group(std::size_t index, const std::function<BufferId(ParameterId)>& shard);

  Program& program_;
  ScheduleBuilder& build_;
  Zero3Config config_;
  const Zero3Partitions& groups_;
  std::vector<SubGroup> sub_groups_;
  BufferId partitions_, expert_partitions_;
  std::vector<Elements> place_;  // by parameter
  OptimizerStep optimizer_;
};

}  // namespace shardsim
