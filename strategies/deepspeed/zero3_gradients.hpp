// SPDX-License-Identifier: Apache-2.0
// Gradients and optimizer of DeepSpeed ZeRO-3: one bucket allocated for life, reduce-scattered when full, partitions accumulated, and a
// step for each sub-group. Source: deepspeed/runtime/zero/stage3.py, runtime/comm/coalesced_collectives.py (reduce_scatter_coalesced).
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "strategies/deepspeed/parameter_coordinator.hpp"
#include "strategies/shared/optimizer_step.hpp"

namespace shardsim {

class Zero3Gradients {
 public:
  Zero3Gradients(Program& program, const Zero3Config& config);

  void begin_micro_batch(std::int32_t index);
  void produce(ParameterId parameter);  ///< autograd allocates .grad
  void ready(ParameterId parameter);    ///< reduce_ready_partitions_and_remove_grads
  void epilogue();                      ///< independent_gradient_partition_epilogue
  void step(const std::function<BufferId(ParameterId)>& shard);

 private:
  struct Pending {
    ParameterId parameter;
    Elements offset;
    bool own_storage = false;
  };

  void declare();
  void add_to_bucket(ParameterId parameter);
  void reduce_and_partition();
  void declare_group(const std::vector<ParameterId>& trainable);
  [[nodiscard]] LayoutId each(const std::vector<ParameterId>& parameters, bool shard);
  void reduce_and_partition_group(const std::vector<Pending>& pending);
  void reduce(const std::vector<Pending>& pending, BufferId flat, Elements payload);
  void all_reduce_shards(const std::vector<ParameterId>& parameters);
  [[nodiscard]] bool quantized(ParameterId parameter) const;
  void reduce_quantized(ParameterId parameter);
  void all_reduce_overflow();
  void step_sub_group(std::size_t index, const std::function<BufferId(ParameterId)>& shard);

  Program& program_;
  ScheduleBuilder& build_;
  Zero3Config config_;
  StreamId reduce_stream_;
  Zero3Partitions groups_;
  CommunicatorId replicate_group_, intra_node_, inter_node_;
  BufferId bucket_;                          ///< ipg buffer
  BufferId partitions_, expert_partitions_;  ///< grad_partitions_flat_buffer, by process group
  std::vector<Elements> place_;              ///< by parameter: where its partition starts in them
  std::vector<std::vector<ParameterId>> sub_groups_;
  std::vector<BufferId> masters_, gradients_;  ///< fp32 partitions by sub-group; .grad by parameter
  std::vector<Pending> pending_;
  Elements filled_;
  std::deque<OpId> reduce_events_;
  OptimizerStep optimizer_;
  std::int32_t micro_batch_ = 0;
};

}  // namespace shardsim
