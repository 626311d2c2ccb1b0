// SPDX-License-Identifier: Apache-2.0
// Expert parallelism, the part that all libraries share: the routed experts of a layer are split over a group of neighbouring ranks;
// tokens travel to their experts and back by all-to-all, in forward, in recomputation and, as gradients, in backward. What an expert's
// gradients, states and shards are spread over is each strategy's own matter: its replicas are the ranks at the same place of the other
// expert groups. Sources: torchtitan (experts/expert_parallel.py), Megatron-Core (transformer/moe/token_dispatcher.py), DeepSpeed
// (module_inject/auto_ep.py; moe/sharded_moe.py for capacity padding), OLMo-core (nn/moe).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "strategies/hooks.hpp"

namespace shardsim {

/// Ranks that share the work on some parameters: `ranks` of them, every stride-th one.
struct RankGroup {
  std::int64_t ranks = 1, stride = 1;
  CommunicatorId communicator{};
  /// Place of a rank in its group.
  [[nodiscard]] std::int64_t part(std::int64_t rank) const { return rank / stride % ranks; }
};

/// Which rank of an expert group holds which experts: blocks of equal size, in order. Without expert_parallel_size every rank holds all.
class ExpertParallel {
 public:
  explicit ExpertParallel(const Job& job);

  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Does this rank hold the parameter? True for everything that is no routed expert.
  [[nodiscard]] bool local(ParameterId parameter) const {
    return size_ == 1 || owner_[index(parameter)] < 0 || owner_[index(parameter)] == own_;
  }
  /// A routed expert of a job that splits them.
  [[nodiscard]] bool expert(ParameterId parameter) const { return size_ > 1 && owner_[index(parameter)] >= 0; }

  /// What this rank holds of a list: parameters that every rank has, and its own experts.
  struct Held {
    std::vector<ParameterId> dense, experts;
  };
  [[nodiscard]] Held held(std::span<const ParameterId> parameters) const;
  /// The same in one list, in the order given.
  [[nodiscard]] std::vector<ParameterId> local(std::span<const ParameterId> parameters) const;

  /// The ranks that hold the same experts, out of `ranks` that hold the model: every size-th one.
  [[nodiscard]] RankGroup replicas(ScheduleBuilder& build, std::int64_t ranks) const;

 private:
  [[nodiscard]] static std::size_t index(ParameterId parameter) { return static_cast<std::size_t>(parameter.index); }

  std::int64_t size_ = 1, own_ = 0;
  std::vector<std::int64_t> owner_;  // by parameter: place in the expert group, -1 for what is not split
};

/// Puts dispatch and combine around the modules of routed experts, and keeps gradients of experts that other ranks hold from `hooks`.
/// Returns them as they are where the job does not split experts.
[[nodiscard]] std::unique_ptr<Hooks> with_expert_parallel(Program& program, std::unique_ptr<Hooks> hooks);

/// expert_parallel_size and expert_capacity_factor.
[[nodiscard]] const std::vector<OptionSpec>& expert_parallel_options();
/// `options`, with those of expert parallelism after them.
[[nodiscard]] std::vector<OptionSpec> with_expert_parallel_options(std::vector<OptionSpec> options);
/// expert_parallel_size must divide the number of experts and the ranks over which they are sharded.
void check_expert_parallel(const Job& job, std::int64_t ranks, Problems& problems);
/// expert_capacity_factor without expert_parallel_size.
void warn_expert_parallel(const Job& job, std::vector<std::string>& warnings);

}  // namespace shardsim
