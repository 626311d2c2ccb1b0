// SPDX-License-Identifier: Apache-2.0
// DeepSpeed ZeRO-3's PartitionedParameterCoordinator: which parameters are gathered when, kept how long, and prefetched how far, by the
// trace of the modules of one micro-batch. Source: deepspeed/runtime/zero/partitioned_param_coordinator.py.
#pragma once

#include <vector>

#include "strategies/deepspeed/zero3_parameters.hpp"

namespace shardsim {

/// A submodule as DeepSpeed's hooks see it: a leaf with its direct parameters, or a container without any.
struct Submodule {
  UnitId name{};
  std::vector<ParameterId> parameters{};
};

class ParameterCoordinator {
 public:
  ParameterCoordinator(Program& program, const Zero3Config& config, const std::vector<Submodule>& submodules);

  /// Submodules in the order in which one micro-batch uses them, forward and backward, recomputation included.
  void set_trace(std::vector<std::int32_t> order);
  /// reset_step: at the start of a micro-batch. The first one of a job records the trace; from the second on, prefetching and reuse rules
  /// apply.
  void reset_step(std::int32_t micro_batch);

  void fetch_sub_module(std::int32_t submodule);
  /// `saved`: autograd keeps the gathered weights until drop_saved().
  void release_sub_module(std::int32_t submodule, bool saved);
  void drop_saved(std::int32_t submodule);

  /// _post_step: updated persistent parameters are gathered again, secondary partitions are out of date.
  void post_step();

  [[nodiscard]] BufferId shard(ParameterId p) const { return parameters_.shard(p); }

 private:
  using Status = Zero3Parameters::Status;
  struct QueueEntry {
    ParameterId parameter;
    std::int64_t step;
  };

  void all_gather(const std::vector<ParameterId>& parameters, UnitId name);
  void prefetch(const Submodule& submodule);
  [[nodiscard]] std::vector<ParameterId> to_release(const Submodule& submodule) const;
  [[nodiscard]] const std::vector<ParameterId>& of(std::int32_t submodule) const {
    return submodules_[static_cast<std::size_t>(submodule)].parameters;
  }
  /// __most_recent_step_id_param_fetched_for.
  [[nodiscard]] std::int64_t& fetched_for(ParameterId p) { return fetched_for_step_[static_cast<std::size_t>(p.index)]; }

  Program& program_;
  Zero3Config config_;
  const std::vector<Submodule>& submodules_;
  StreamId allgather_;
  Zero3Parameters parameters_;
  std::vector<std::int32_t> trace_;
  std::vector<QueueEntry> queue_;  // __param_queue; queue_front_ moves along
  std::size_t queue_front_ = 0;
  std::vector<std::int64_t> fetched_for_step_;  // by parameter
  std::int64_t step_ = 0, available_ = 0;
  bool complete_ = true;
};

}  // namespace shardsim
