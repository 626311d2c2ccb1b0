// SPDX-License-Identifier: Apache-2.0
// Gradients of DeepSpeed ZeRO-3: one bucket allocated for life, reduced when the next gradient does not fit, this rank's partitions kept
// and added up. Source: deepspeed/runtime/zero/stage3.py, runtime/comm/coalesced_collectives.py (reduce_scatter_coalesced).
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "strategies/deepspeed/zero3_sub_groups.hpp"

namespace shardsim {

class Zero3Gradients {
 public:
  Zero3Gradients(Program& program, const Zero3Config& config);

  void begin_micro_batch(std::int32_t index) { micro_batch_ = index; }
  void produce(ParameterId parameter);  ///< autograd allocates .grad
  void ready(ParameterId parameter);    ///< reduce_ready_partitions_and_remove_grads
  void epilogue();                      ///< independent_gradient_partition_epilogue
  void step(const std::function<BufferId(ParameterId)>& shard) { sub_groups_.step(shard); }

 private:
  struct Pending {
    ParameterId parameter{};
    Elements offset{};
    bool own_storage = false;
  };

  void add_to_bucket(ParameterId parameter);
  void reduce_and_partition();
  void all_reduce_bucket();
  void reduce_scatter_bucket();
  void send(BufferId flat, Elements payload);
  void partition_gradients(ParameterId parameter, BufferId from, Elements count);
  void all_reduce_shards();
  [[nodiscard]] bool quantized(ParameterId parameter) const;
  void reduce_quantized(ParameterId parameter);
  [[nodiscard]] LayoutId each(const std::vector<ParameterId>& parameters, bool shard);
  [[nodiscard]] std::vector<ParameterId> pending_parameters() const;
  [[nodiscard]] const RankGroup& ranks() const { return groups_.of(pending_.front().parameter); }
  [[nodiscard]] BufferId& gradient(ParameterId p) { return gradients_[static_cast<std::size_t>(p.index)]; }

  Program& program_;
  ScheduleBuilder& build_;
  Zero3Config config_;
  StreamId reduce_stream_;
  Zero3Partitions groups_;
  Zero3SubGroups sub_groups_;
  CommunicatorId replicate_group_, intra_node_, inter_node_;
  BufferId bucket_;                  // ipg buffer; none without contiguous_gradients
  std::vector<BufferId> gradients_;  // .grad by parameter
  std::vector<Pending> pending_;     // of one process group
  Elements filled_;
  std::deque<OpId> reduce_events_;
  std::int32_t micro_batch_ = 0;
};

}  // namespace shardsim
