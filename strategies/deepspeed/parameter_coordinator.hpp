// SPDX-License-Identifier: Apache-2.0
// DeepSpeed ZeRO-3's PartitionedParameterCoordinator: which parameters are gathered when, kept how long, and prefetched how far, by the
// trace of the modules of one micro-batch. Source: deepspeed/runtime/zero/partitioned_param_coordinator.py.
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
  bool overlap_comm = true, reduce_scatter = true;
  std::int64_t hpz = 1;  ///< ranks of the secondary partition (ZeRO++), 1: none
  bool quantized_weights = false, quantized_gradients = false;
  bool hierarchical_gather = false;  ///< MiCS: between nodes first, then inside them
  std::int64_t gpus_per_node = 8;    ///< the first hop of quantised gradients stays inside a node
  DType parameters = DType::bf16, accumulation = DType::bf16, communication = DType::bf16, master = DType::fp32;
};

/// A submodule as DeepSpeed's hooks see it: a leaf with its direct parameters, or a container without any.
struct Submodule {
  UnitId name;
  std::vector<ParameterId> parameters;
};

class ParameterCoordinator {
 public:
  ParameterCoordinator(Program& program, const Zero3Config& config, const std::vector<Submodule>& submodules);

  /// Submodules in the order in which one micro-batch uses them, forward and backward, recomputation included.
  void set_trace(std::vector<std::int32_t> order);
  /// reset_step: at the start of a micro-batch. `complete`: the trace is known, so prefetching and reuse rules apply.
  void reset_step(bool complete);

  void fetch_sub_module(std::int32_t submodule);
  void release_sub_module(std::int32_t submodule);

  /// Gathers updated persistent parameters again, one all-gather each, and waits for the device. Source: stage3.py, _post_step.
  void gather_persistent();
  void drop_secondary();

  [[nodiscard]] BufferId shard(ParameterId p) const { return states_[static_cast<std::size_t>(p.index)].shard; }
  [[nodiscard]] Elements partition(ParameterId p) const;

 private:
  enum class Status : std::uint8_t { not_available, in_flight, available };
  struct ParameterState {
    Status status = Status::not_available;
    bool persistent = false;
    BufferId shard, full, secondary;
    std::int32_t handle = -1;
    std::int64_t fetched_for_step = -1;  ///< __most_recent_step_id_param_fetched_for
  };
  struct Handle {
    std::vector<ParameterId> parameters;
    BufferId flat;  ///< of a coalesced gather; a single parameter is gathered in place
    OpId gather;
    std::size_t in_registry = 0;
    bool complete = false;
    bool secondary = false;
  };
  struct QueueEntry {
    ParameterId parameter;
    std::int64_t step;
  };

  void declare_parameters();
  void all_gather(const std::vector<ParameterId>& parameters, UnitId name);
  void all_gather_in_group(const std::vector<ParameterId>& parameters, UnitId name);
  void gather_between_nodes(Elements payload, UnitId name);
  void wait(ParameterId parameter);
  void rebuild(Handle& handle);
  void prefetch(const Submodule& submodule);
  void make_secondary(ParameterId parameter);
  [[nodiscard]] std::vector<ParameterId> to_release(const Submodule& submodule) const;
  [[nodiscard]] ParameterState& at(ParameterId p) { return states_[static_cast<std::size_t>(p.index)]; }
  [[nodiscard]] const ParameterState& at(ParameterId p) const { return states_[static_cast<std::size_t>(p.index)]; }
  [[nodiscard]] std::int64_t numel(ParameterId p) const { return program_.model().at(p).elements.value(); }
  [[nodiscard]] LayoutId each(const std::vector<ParameterId>& parameters, const RankGroup& ranks, bool shard);
  [[nodiscard]] const RankGroup& ranks_of(const Handle& handle) const {
    return handle.secondary ? hpz_group_ : groups_.of(handle.parameters.front());
  }
  [[nodiscard]] BufferId allocate_full(ParameterId p, const RankGroup& ranks);

  Program& program_;
  ScheduleBuilder& build_;
  Zero3Config config_;
  const std::vector<Submodule>& submodules_;
  StreamId allgather_, process_group_;
  Zero3Partitions groups_;
  RankGroup hpz_group_, inter_node_, intra_node_;
  std::vector<ParameterState> states_;  // by parameter
  std::vector<Handle> handles_;
  std::vector<std::int32_t> trace_;
  std::vector<QueueEntry> queue_;  // __param_queue; queue_front_ moves along
  std::size_t queue_front_ = 0;
  std::deque<OpId> fetch_events_;
  std::int64_t step_ = 0, available_ = 0;
  bool complete_ = true;
};

}  // namespace shardsim
