// SPDX-License-Identifier: Apache-2.0
// FSDP1's flat parameters: one for each wrapped module, padded, cut into equal shards, unsharded as a whole.
// Source: torch/distributed/fsdp/_flat_param.py (FlatParamHandle), _runtime_utils.py, _limiter_utils.py.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "strategies/hooks.hpp"
#include "strategies/shared/optimizer_step.hpp"

namespace shardsim {

/// Options of one job, resolved.
struct Fsdp1Config {
  /// auto_wrap_policy: transformer blocks; the embedding too; PEFT's fsdp_auto_wrap_policy; nothing but the root.
  enum class Wrap : std::uint8_t { blocks, embedding, peft, none };
  enum class Prefetch : std::uint8_t { none, pre, post };
  std::int64_t shard = 1, replicate = 1;
  bool reshard_after_forward = true;  ///< FULL_SHARD and HYBRID_SHARD
  Prefetch backward_prefetch = Prefetch::pre;
  Wrap wrap = Wrap::blocks;
  bool forward_prefetch = false, limit_all_gathers = true, use_orig_params = false, no_sync = false;
  DType stored = DType::fp32;      ///< of the shard, its gradient and the moments
  DType parameters = DType::bf16;  ///< gathered and computed with
  DType reduce = DType::bf16;      ///< on the wire of reductions; defaults to the parameters'
};
[[nodiscard]] Fsdp1Config fsdp1_config(const Job& job);

struct FlatParamHandle {
  UnitId name;
  bool root = false;
  std::vector<ParameterId> parameters;
  bool trains = false;
  DType stored = DType::fp32, gathered = DType::bf16, reduce = DType::bf16;  ///< the job's, unless adapters have a dtype of their own
  std::int32_t align = 1;
  Elements unpadded, padded;               ///< of the flat parameter
  BufferId shard;                          ///< stored
  BufferId unsharded;                      ///< the full flat parameter
  std::vector<BufferId> tensor_gradients;  ///< of the views, until torch.split's backward concatenates them
  BufferId flat_gradient;                  ///< unsharded; kept across micro-batches under no_sync
  BufferId sharded_gradient;               ///< _saved_grad_shard
  BufferId kept_gradient;                  ///< the same, where zero_grad fills it with zeros instead of setting it to none
  bool prefetched = false;
  bool views_made_ahead = false;            ///< it was unsharded by the unit in front of it in forward
  bool needs_pre_backward_unshard = false;  ///< its forward has run, its backward has not: only then is it worth prefetching
  FlatParamHandle* apart = nullptr;         ///< the unit's trained parameters, where PEFT's policy wraps them apart from frozen ones
};

/// The rate limiter's queue: unsharding first waits, on the host, until all but the two youngest frees are really done.
class FreeEventQueue {
 public:
  void enqueue(OpId event) { events_.push_back(event); }
  /// The oldest event, if two or more are queued.
  [[nodiscard]] OpId dequeue_if_needed() {
    if (events_.size() < max_inflight_all_gathers) return {};
    const OpId oldest = events_.front();
    events_.pop_front();
    return oldest;
  }

 private:
  static constexpr std::size_t max_inflight_all_gathers = 2;
  std::deque<OpId> events_;
};

class FlatParamHandles {
 public:
  FlatParamHandles(Program& program, const Fsdp1Config& config);

  [[nodiscard]] FlatParamHandle* root() { return root_; }
  [[nodiscard]] FlatParamHandle* of_layer(std::int32_t layer) const { return of_layer_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] FlatParamHandle* after(const FlatParamHandle* handle);  ///< in forward order; of none: the first

  void wait_for_default_stream();         ///< root pre-forward: unshard and pre_unshard wait for the default stream
  void unshard(FlatParamHandle& handle);  ///< _runtime_utils._unshard
  void wait_for_unshard();                ///< the default stream waits for the unshard stream
  void reshard(FlatParamHandle& handle);  ///< _runtime_utils._reshard
  void produce_gradient(ParameterId parameter);
  void concatenate_gradients(FlatParamHandle& handle);  ///< backward of torch.split
  void reduce_gradient(FlatParamHandle& handle);        ///< the body of _post_backward_hook, on the post_backward stream
  void finish_backward();                               ///< the default stream waits for all reductions
  void step();

 private:
  FlatParamHandle* add_unit(const std::string& name, const std::vector<ParameterId>& parameters, bool root);
  FlatParamHandle* add(const std::string& name, std::vector<ParameterId> parameters, bool root);
  [[nodiscard]] Elements trained_in_shard(const FlatParamHandle& handle) const;
  [[nodiscard]] LayoutId layout(const FlatParamHandle& handle, bool shard);
  [[nodiscard]] BufferId make(const char* verb, const FlatParamHandle& handle, Category category, DType dtype, StreamId pool, bool full,
                              Role role = Role::none);
  [[nodiscard]] Buffer gradient_of(const FlatParamHandle& handle);
  void accumulate_shard(FlatParamHandle& handle, BufferId reduced);

  Program& program_;
  ScheduleBuilder& build_;
  Fsdp1Config config_;
  StreamId unshard_, pre_unshard_, post_backward_, all_reduce_;
  CommunicatorId shard_group_, replicate_group_;
  std::vector<std::unique_ptr<FlatParamHandle>> handles_;  // blocks in forward order, then the root
  std::vector<FlatParamHandle*> of_layer_, of_parameter_;
  FlatParamHandle* root_ = nullptr;
  FreeEventQueue free_events_;
  OptimizerStep optimizer_;
  bool offload_ = false;
};

}  // namespace shardsim
