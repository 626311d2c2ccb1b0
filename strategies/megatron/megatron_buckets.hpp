// SPDX-License-Identifier: Apache-2.0
// Megatron-Core's parameter and gradient buffers: parameters in reverse definition order, cut into buckets that are reduced and gathered
// in place. Source: Megatron-LM core/distributed/{param_and_grad_buffer,distributed_data_parallel}.py, core/optimizer/distrib_optimizer.py.
#pragma once

#include <vector>

#include "strategies/shared/expert_parallel.hpp"
#include "strategies/shared/optimizer_step.hpp"

namespace shardsim {

/// DistributedDataParallelConfig of one job, resolved.
struct MegatronConfig {
  bool use_distributed_optimizer = true;
  bool overlap_grad_reduce = false;
  bool overlap_param_gather = false;
  bool average_in_collective = false;
  bool pad_buckets_for_high_nccl_busbw = false;
  bool reduce_scatter_with_fp32_accumulation = false;
  std::int64_t instances = 1;        ///< num_distributed_optimizer_instances
  std::int64_t shard = 1;            ///< ranks of one instance
  std::int64_t expert_parallel = 1;  ///< expert_parallel_size
  std::int64_t bucket_size = 0;      ///< elements; 0: one bucket
  DType parameters = DType::bf16;
  DType gradients = DType::fp32;  ///< of the gradient buffer and of its reduction
  DType master = DType::fp32;
  bool has_master = true;
};
[[nodiscard]] MegatronConfig megatron_config(const Job& job);

/// Elements that a bucket's end is padded to a multiple of, for a bucket that is sharded over `shard` ranks: lcm(shard, 128), so that
/// shards are equal and aligned.
[[nodiscard]] std::int64_t bucket_end_multiple(const MegatronConfig& config, std::int64_t shard);

/// The ranks that share the work on a buffer: all of them, or, for routed experts that are split, those that hold the same ones.
struct MegatronGroups {
  RankGroup intra{};       ///< of one optimizer instance
  CommunicatorId inter{};  ///< across instances
};

/// _ParamAndGradBucket: a stretch of the parameter buffer, the same stretch of the gradient buffer, and this rank's share of the optimizer.
struct MegatronBucket {
  UnitId name{};
  MegatronGroups groups{};
  std::int32_t next = -1;  ///< next_param_gather_bucket_group: the bucket before it in the same buffer
  std::vector<ParameterId> parameters{};
  Elements elements{};  ///< padded
  Elements owned{};     ///< that this rank updates
  BufferId param_data{}, grad_data{};
  BufferId weights{};  ///< that the optimizer updates: shard_fp32_from_float16_groups, or a view of the parameters (shard_fp32_groups)
  LayoutId owned_layout{};
  BufferId received{};      ///< of the all-to-all under reduce_scatter_with_fp32_accumulation, until the gradients are waited for
  std::size_t pending = 0;  ///< parameters without a gradient in the last micro-batch so far
  OpId grad_reduce_handle{}, param_gather_handle{};
  bool param_gather_dispatched = false;
};

/// Buckets of one buffer, whose parameters are laid out in reverse order: appended, closed when the bucket has reached its size; a tied
/// embedding stands alone under the distributed optimizer.
[[nodiscard]] std::vector<std::vector<ParameterId>> megatron_buckets(const Model& model, const MegatronConfig& config,
                                                                     std::vector<ParameterId> parameters);

class MegatronBuckets {
 public:
  MegatronBuckets(Program& program, const MegatronConfig& config);

  [[nodiscard]] std::vector<MegatronBucket>& all() { return buckets_; }
  [[nodiscard]] std::int32_t index_of(ParameterId p) const { return bucket_of_[static_cast<std::size_t>(p.index)]; }
  /// Where this rank's shard begins in the bucket.
  [[nodiscard]] Elements first_owned(const MegatronBucket& bucket) const;
  [[nodiscard]] OptimizerStep& optimizer() { return optimizer_; }                   ///< target i: this rank's part of bucket i
  [[nodiscard]] CommunicatorId group() const { return dense_.intra.communicator; }  ///< of one optimizer instance

 private:
  void add_buffer(std::vector<ParameterId> parameters, const MegatronGroups& groups);
  void add_bucket(std::vector<ParameterId> parameters, const MegatronGroups& groups);
  void declare_buffers(MegatronBucket& bucket);
  [[nodiscard]] std::vector<ParameterId> owned_parameters(const MegatronBucket& bucket, const std::vector<std::int64_t>& starts) const;

  Program& program_;
  const MegatronConfig& config_;
  OptimizerStep optimizer_;
  MegatronGroups dense_;
  std::vector<MegatronBucket> buckets_;
  std::vector<std::int32_t> bucket_of_;  // by parameter; -1: frozen
};

}  // namespace shardsim
