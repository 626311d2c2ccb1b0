// SPDX-License-Identifier: Apache-2.0
// Megatron-Core's parameter and gradient buffers: parameters in reverse definition order, cut into buckets that are reduced and gathered
// in place. Source: Megatron-LM core/distributed/{param_and_grad_buffer,distributed_data_parallel}.py, core/optimizer/distrib_optimizer.py.
#pragma once

#include <vector>

#include "strategies/hooks.hpp"
#include "strategies/optimizer_step.hpp"

namespace shardsim {

/// DistributedDataParallelConfig of one job, resolved.
struct MegatronConfig {
  bool use_distributed_optimizer = true;
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  bool average_in_collective = false;
  bool pad_buckets_for_high_nccl_busbw = false;
  std::int64_t instances = 1;          ///< num_distributed_optimizer_instances
  std::int64_t shard = 1;              ///< ranks of one instance
  std::int64_t bucket_size = 0;        ///< elements; 0: one bucket
  DType parameters = DType::bf16;
  DType gradients = DType::fp32;       ///< of the gradient buffer and of its reduction
  DType master = DType::fp32;
  bool has_master = true;
};
[[nodiscard]] MegatronConfig megatron_config(const Job& job);

/// Elements that a bucket's end is padded to a multiple of: lcm(shard, 128), so that shards are equal and aligned.
[[nodiscard]] std::int64_t bucket_end_multiple(const MegatronConfig& config);

/// _ParamAndGradBucket: a stretch of the parameter buffer, the same stretch of the gradient buffer, and this rank's share of the optimizer.
struct MegatronBucket {
  UnitId name{};
  std::vector<ParameterId> parameters{};
  Elements elements{};                ///< padded
  Elements owned{};                   ///< that this rank updates
  BufferId param_data{}, grad_data{};
  BufferId weights{};                 ///< that the optimizer updates: shard_fp32_from_float16_groups, or a view of the parameters (shard_fp32_groups)
  LayoutId owned_layout{};
  std::size_t pending = 0;            ///< parameters without a gradient in the last micro-batch so far
  OpId grad_reduce_handle{}, param_gather_handle{};
  bool param_gather_dispatched = false;
};

/// Positions in the list where buckets end: appended, closed when the bucket has reached its size; a tied embedding stands alone under the
/// distributed optimizer.
[[nodiscard]] std::vector<std::vector<ParameterId>> megatron_buckets(const Model& model, const MegatronConfig& config);

class MegatronBuckets {
 public:
  MegatronBuckets(Program& program, const MegatronConfig& config);

  [[nodiscard]] std::vector<MegatronBucket>& all() { return buckets_; }
  [[nodiscard]] std::int32_t index_of(ParameterId p) const { return bucket_of_[static_cast<std::size_t>(p.index)]; }
  /// Where this rank's shard begins in the bucket.
  [[nodiscard]] Elements first_owned(const MegatronBucket& bucket) const;
  [[nodiscard]] OptimizerStep& optimizer() { return optimizer_; }           ///< target i: this rank's part of bucket i
  [[nodiscard]] CommunicatorId group() const { return group_; }             ///< of one optimizer instance
  [[nodiscard]] CommunicatorId across_instances() const { return across_; }

 private:
  void add_bucket(std::vector<ParameterId> parameters);
  void declare_buffers(MegatronBucket& bucket);
  [[nodiscard]] std::vector<ParameterId> owned_parameters(const MegatronBucket& bucket, const std::vector<std::int64_t>& starts) const;

  Program& program_;
  const MegatronConfig& config_;
  OptimizerStep optimizer_;
  CommunicatorId group_, across_;
  std::vector<MegatronBucket> buckets_;
  std::vector<std::int32_t> bucket_of_;  // by parameter; -1: frozen
};

}  // namespace shardsim
