// SPDX-License-Identifier: Apache-2.0
// FSDP2's parameter groups and their life: sharded, unsharded, resharded; gradients reduced to shards. Shared state of one rank.
// Source: _fsdp_param_group.py (FSDPParamGroup, FSDPCommContext), _fsdp_collectives.py (foreach_all_gather, foreach_reduce).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strategies/hooks.hpp"
#include "strategies/shared/expert_parallel.hpp"
#include "strategies/shared/optimizer_step.hpp"

namespace shardsim {

/// OffloadPolicy: the shards of parameters and optimizer states lie in host memory.
[[nodiscard]] inline bool offloads_parameters(const Training& training) { return training.offload.parameters != OffloadTarget::none; }

/// Options of one job, resolved.
struct Fsdp2Config {
  std::int64_t shard = 1;      ///< ranks of the shard group
  std::int64_t replicate = 1;  ///< replicas (HSDP)
  std::int64_t reshard = 1;    ///< after forward: 1 to the shards, 0 not at all, M > 1 to M ranks
  bool reshard_root = false;   ///< by default reshard_after_forward=None, which means False for the root
  std::int64_t forward_prefetch = 0, backward_prefetch = 1;
  bool separate_reduce_scatter_group = false;
  std::int64_t max_input_buffers = 1;
  bool sync_every_micro_batch = true, all_reduce_every_micro_batch = true;
  bool reshard_after_backward = true, unshard_embedding_in_backward = true;
  bool torchtitan_wrapping = false;  ///< norm and head are a group, which torchtitan does not reshard: backward needs it at once
  DType stored = DType::fp32;        ///< of the shard, its gradient and the moments
  DType parameters = DType::bf16;    ///< gathered and computed with
  DType gradients = DType::bf16;     ///< as autograd leaves them
  DType reduce = DType::bf16;        ///< on the wire of reductions
};
[[nodiscard]] Fsdp2Config fsdp2_config(const Job& job);
[[nodiscard]] DType fsdp2_reduction_dtype(const Job& job);

/// "true" -> 1, "false" -> 0, "8" -> 8, "1" -> 0; nothing if it is none of these.
[[nodiscard]] std::optional<std::int64_t> reshard_size(const std::string& word);

/// Streams and communicators by role (FSDPCommContext.lazy_init). The copy-in stream is separate so that a copy-in overlaps the
/// all-gather before it.
struct CommContext {
  StreamId all_gather_copy_in, all_gather, reduce_scatter, all_reduce;
  CommunicatorId replicate, reshard;
};

/// The ranks that shard a group: all of the shard group, or, for routed experts, those that hold the same experts.
struct ShardMesh {
  std::int64_t ranks = 1, stride = 1;
  CommunicatorId gather, reduce;
  [[nodiscard]] std::int64_t part(std::int64_t rank) const { return rank / stride % ranks; }
};

/// Parameters of one dtype in a group. Where there are two, adapters beside a frozen base, one all-gather moves both as bytes.
struct GroupPart {
  DType stored = DType::fp32, gathered = DType::bf16;
  std::vector<ParameterId> parameters{};
  Elements padded{};
  BufferId shard{};      ///< stored parameters of this rank
  BufferId unsharded{};  ///< P
  BufferId resharded{};  ///< after forward, when resharding to M ranks
};

/// One fully_shard call: parameters gathered and reduced together.
struct ParamGroup {
  UnitId name;
  ShardMesh mesh;
  std::int32_t first_layer = 0, last_layer = 0;
  bool embedding = false, head = false;
  std::vector<ParameterId> trainable;
  std::vector<GroupPart> parts;                                              ///< one, or the base and its adapters
  DType stored = DType::fp32, gradient = DType::bf16, reduce = DType::bf16;  ///< of what trains
  Elements padded_trainable;
  BufferId all_gather_output;         ///< B
  std::vector<BufferId> gradients;    ///< G: .grad of each trainable parameter, empty until produced
  std::vector<BufferId> accumulated;  ///< unsharded gradients in reduce dtype, while gradient sync is off
  BufferId sharded_gradient;          ///< .grad of the shard
  BufferId kept_gradient;             ///< the same, where zero_grad fills it with zeros instead of setting it to none
  BufferId partial_reduce;            ///< HSDP: reduce-scatter output kept while all-reduce is off
  BufferId all_reduce_state;          ///< HSDP: all-reduce buffer kept until the group's next use
  OpId all_gathered, post_reduce;
  bool gather_pending = false;  ///< unshard() issued, wait_for_unshard() not yet
  bool post_backward_done = false;
  bool gathered_over_m = false;  ///< the pending all-gather runs over the M ranks of reshard_after_forward
  [[nodiscard]] bool unsharded() const { return parts.front().unsharded.valid(); }
  [[nodiscard]] BufferId weights() const { return parts.back().shard; }  ///< what the optimizer updates
};

class ParamGroups {
 public:
  ParamGroups(Program& program, const Fsdp2Config& config);

  [[nodiscard]] const CommContext& comm() const { return comm_; }
  [[nodiscard]] ParamGroup* root() { return root_; }
  [[nodiscard]] ParamGroup* entered_at(std::int32_t layer);                          ///< group whose first layer this is
  [[nodiscard]] ParamGroup* left_at(std::int32_t layer);                             ///< group whose last layer this is
  [[nodiscard]] ParamGroup* experts_at(std::int32_t layer, std::int32_t module);     ///< group of a module of routed experts
  [[nodiscard]] ParamGroup* neighbour(const ParamGroup& group, std::int64_t ahead);  ///< in forward order, without the root
  /// named_modules() pre-order: root first.
  [[nodiscard]] const std::vector<ParamGroup*>& in_module_order() const { return module_order_; }
  /// Then autograd has no node to hang the group's post-backward on: it comes in the root's final callback.
  [[nodiscard]] bool inputs_need_no_gradient(const ParamGroup& group) const {
    return group.first_layer == 0 || !output_needs_gradient_[static_cast<std::size_t>(group.first_layer) - 1];
  }

  void begin_micro_batch(std::int32_t index);
  void unshard(ParamGroup& group, Phase phase);
  void wait_for_unshard(ParamGroup& group, Phase phase);
  void reshard_after_forward(ParamGroup& group);
  void finish_forward();
  void produce_gradient(ParameterId parameter);
  void post_backward(ParamGroup& group);
  void wait_for_post_reduce();
  void finish_backward();
  void step();

 private:
  struct ReduceScatterState {
    BufferId input;
    OpId event;
  };

  void make_communicators();
  void make_groups();
  ParamGroup* add_group(const std::string& name, std::int32_t first, std::int32_t last, std::vector<ParameterId> parameters,
                        const ShardMesh& mesh);
  void add_block(std::int32_t layer, const std::vector<ParameterId>& parameters);
  [[nodiscard]] LayoutId rows_layout(const ShardMesh& mesh, const std::vector<ParameterId>& parameters, bool shard, bool unpadded = false);
  [[nodiscard]] BufferId make(const char* verb, const ParamGroup& group, Category category, DType dtype, StreamId pool, Elements elements,
                              LayoutId layout, Role role = Role::none);
  [[nodiscard]] LayoutId resharded_layout(const ParamGroup& group, const GroupPart& part, bool shard);
  void add_parts(ParamGroup& group, const std::vector<ParameterId>& parameters);
  [[nodiscard]] std::vector<BufferId> cast_shards(const ParamGroup& group);
  void copy_in_and_all_gather(ParamGroup& group);
  void drop_all_gather_state();
  void reshard(ParamGroup& group);
  void accumulate_unsharded(ParamGroup& group);
  void drop_oldest_reduce_scatter();
  [[nodiscard]] BufferId chunk_cat(ParamGroup& group);
  void reduce(ParamGroup& group);
  [[nodiscard]] bool all_reduces_later() const;
  [[nodiscard]] bool keep_partial(ParamGroup& group, BufferId output);
  void reduce_scatter(ParamGroup& group, BufferId input, BufferId output);
  void all_reduce(ParamGroup& group, BufferId& output);
  [[nodiscard]] Buffer gradient_of(const ParamGroup& group);
  void orthogonalize_updates();
  void to_sharded_gradient(ParamGroup& group, BufferId output, StreamId stream);

  Program& program_;
  ScheduleBuilder& build_;
  Fsdp2Config config_;
  CommContext comm_;
  ExpertParallel experts_;
  ShardMesh dense_, expert_mesh_;
  std::vector<std::unique_ptr<ParamGroup>> groups_;  // forward order; the root stands where it is in module order
  std::vector<ParamGroup*> module_order_;
  std::vector<ParamGroup*> entered_, left_;  // by layer
  std::vector<ParamGroup*> expert_groups_;   // by layer
  std::vector<ParamGroup*> group_of_;        // by parameter
  std::vector<bool> output_needs_gradient_;  // by layer
  ParamGroup* root_ = nullptr;
  ParamGroup* all_gather_state_ = nullptr;  // group whose B is alive until the next wait_for_unshard
  OpId last_copy_out_;
  std::deque<ReduceScatterState> reduce_scatter_states_;
  std::vector<OpId> unwaited_post_reduce_;
  OptimizerStep optimizer_;
  std::int32_t micro_batch_ = 0;
};

}  // namespace shardsim
