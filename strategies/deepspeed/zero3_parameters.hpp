// SPDX-License-Identifier: Apache-2.0
// The parameters of DeepSpeed ZeRO-3: the partition of each, and how they are gathered and given up again, alone or many in one call,
// quantised (qwZ), over all ranks or within the secondary partition (hpZ). When is the coordinator's business.
// Source: deepspeed/runtime/zero/partition_parameters.py.
#pragma once

#include <deque>
#include <vector>

#include "strategies/deepspeed/zero3_partitions.hpp"

namespace shardsim {

/// Options of one job, resolved. Sizes are elements, as in DeepSpeed's config.
struct Zero3Config {
  std::int64_t shard = 1, replicas = 1;  ///< MiCS shards within groups; ZeRO-3 over all ranks
  std::int64_t prefetch_bucket = 50'000'000, persistence_threshold = 100'000, max_live = 1'000'000'000, max_reuse_distance = 1'000'000'000;
  std::int64_t sub_group = 1'000'000'000, reduce_bucket = 500'000'000;
  bool overlap_comm = true, reduce_scatter = true, contiguous_gradients = true;
  std::int64_t hpz = 1;  ///< ranks of the secondary partition (ZeRO++), 1: none
  bool quantized_weights = false, quantized_gradients = false;
  bool hierarchical_gather = false;  ///< MiCS: between nodes first, then inside them
  std::int64_t gpus_per_node = 8;    ///< the first hop of quantised gradients stays inside a node
  DType parameters = DType::bf16, accumulation = DType::bf16, communication = DType::bf16, master = DType::fp32;
};

class Zero3Parameters {
 public:
  enum class Status : std::uint8_t { not_available, in_flight, available };

  Zero3Parameters(Program& program, const Zero3Config& config);

  [[nodiscard]] Status status(ParameterId p) const { return at(p).status; }
  [[nodiscard]] bool persistent(ParameterId p) const { return at(p).persistent; }
  [[nodiscard]] BufferId shard(ParameterId p) const { return at(p).shard; }
  [[nodiscard]] std::int64_t numel(ParameterId p) const { return program_.model().at(p).elements.value(); }

  /// One coalesced call for each process group; those with a secondary partition apart.
  void all_gather(const std::vector<ParameterId>& parameters, UnitId name);
  void wait(ParameterId parameter);
  /// `saved`: autograd holds what was gathered until drop_saved().
  void release(ParameterId parameter, bool saved);
  void drop_saved(ParameterId parameter);

  /// From now on small parameters stay once they are gathered (they are released while the trace is recorded).
  void keep_persistent() { keeps_persistent_ = true; }
  /// Gathers updated persistent parameters again, one all-gather each, and waits for the device. Source: stage3.py, _post_step.
  void gather_persistent();
  /// invalidate_secondary_tensor: of trainable parameters; those of frozen ones live for ever.
  void drop_secondary();
  /// assert_ints_same_as_other_ranks: a list's length, then the list, from rank 0.
  void compare_over_ranks(std::size_t length);

 private:
  struct State {
    Status status = Status::not_available;
    bool persistent = false;
    BufferId shard, full, secondary;
    BufferId saved;  ///< gathered, released, and still held by autograd
    std::int32_t handle = -1;
  };
  struct Handle {
    std::vector<ParameterId> parameters{};
    BufferId flat{};         ///< of a coalesced or quantised gather; a single parameter is gathered in place
    BufferId dequantized{};  ///< of a coalesced quantised one
    OpId gather{};
    std::size_t in_registry = 0;
    bool complete = false;
    bool secondary = false;
  };

  void declare();
  void all_gather_in_group(const std::vector<ParameterId>& parameters, bool secondary, UnitId name);
  void gather_plain(Handle& handle, Elements payload, UnitId name);
  void gather_quantized(Handle& handle, Elements payload, UnitId name);
  void gather_between_nodes(Elements payload, UnitId name);
  OpId communicate(const Handle& handle, const Communicate& gather, UnitId name);
  void copy_partitions(const Handle& handle, BufferId target, UnitId name);
  void rebuild(Handle& handle);
  void make_secondary(ParameterId parameter);
  [[nodiscard]] BufferId secondary_buffer(ParameterId parameter);
  [[nodiscard]] BufferId allocate_full(ParameterId p, const RankGroup& ranks);
  [[nodiscard]] State& at(ParameterId p) { return states_[static_cast<std::size_t>(p.index)]; }
  [[nodiscard]] const State& at(ParameterId p) const { return states_[static_cast<std::size_t>(p.index)]; }
  [[nodiscard]] bool frozen(ParameterId p) const { return !program_.model().at(p).trainable; }
  [[nodiscard]] bool offload() const { return program_.training().offload.parameters != OffloadTarget::none; }
  /// Elements with padding, which is for all ranks even where a secondary partition is cut (_aligned_size).
  [[nodiscard]] Elements gathered(ParameterId p) const;
  [[nodiscard]] LayoutId each(const std::vector<ParameterId>& parameters, const RankGroup& ranks, bool shard);
  [[nodiscard]] const RankGroup& ranks_of(const Handle& handle) const {
    return handle.secondary ? hpz_group_ : groups_.of(handle.parameters.front());
  }

  Program& program_;
  ScheduleBuilder& build_;
  Zero3Config config_;
  StreamId allgather_, process_group_;
  Zero3Partitions groups_;
  RankGroup hpz_group_, inter_node_, intra_node_;
  std::vector<State> states_;  // by parameter
  std::vector<Handle> handles_;
  std::deque<OpId> fetch_events_;
  bool keeps_persistent_ = false;
};

}  // namespace shardsim
