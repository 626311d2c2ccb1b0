// SPDX-License-Identifier: Apache-2.0
// DeepSpeedZeroOptimizer.step: overflow check, norm, one optimizer step for each param group, all-gather of the updated parameters.
// Source: DeepSpeed runtime/zero/stage_1_and_2.py.
#pragma once

#include <vector>

#include "strategies/deepspeed/zero12.hpp"
#include "strategies/deepspeed/zero12_groups.hpp"

namespace shardsim {

class ZeroStep {
 public:
  ZeroStep(Program& program, const Zero12Config& config, FlatGroups& groups) : build_(program.build), config_(config), groups_(groups) {}

  /// check_overflow and scaled_global_norm: the host waits for both.
  void check_and_norm();

  /// `averaged` names, for each group, the buffers that hold this rank's slices (averaged_gradients); none where it owns only padding.
  /// Each is freed when the last group that reads it has its own copy.
  void step(const std::vector<std::vector<BufferId>>& averaged);

  /// The same with the optimizer on the CPU: `host_gradients` are the groups' gradient partitions in host memory.
  void step_offloaded(const std::vector<BufferId>& host_gradients);

 private:
  void check_overflow();
  void test_every_element(const FlatGroup& group);
  void all_reduce_overflow();
  void scaled_global_norm();
  void step_group(std::size_t index, const std::vector<std::vector<BufferId>>& averaged);
  [[nodiscard]] BufferId flatten(const FlatGroup& group, const std::vector<BufferId>& tensors);
  void release(std::size_t index, const std::vector<std::vector<BufferId>>& averaged);
  void unscale_and_clip(const FlatGroup& group);
  OpId all_reduce_scalar(const char* verb, const FlatGroup* group, DType dtype, Reduction reduction);
  OpId average_expert_norm(const FlatGroup& group);

  ScheduleBuilder& build_;
  const Zero12Config& config_;
  FlatGroups& groups_;
};

}  // namespace shardsim
