// SPDX-License-Identifier: Apache-2.0
// Expert parallelism: the routed experts of a layer are split over a group of neighbouring ranks; tokens travel to their experts and back
// by all-to-all, in forward, in recomputation and, as gradients, in backward. Sources: torchtitan (experts/expert_parallel.py), DeepSpeed
// (moe/sharded_moe.py, capacity padding).
#pragma once

#include <vector>

#include "strategies/hooks.hpp"

namespace shardsim {

class ExpertParallel {
 public:
  explicit ExpertParallel(Program& program);

  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Does this rank hold the parameter? True for everything that is no routed expert; experts lie in blocks of equal size.
  [[nodiscard]] bool local(ParameterId parameter) const { return owner_[static_cast<std::size_t>(parameter.index)] == own_ || size_ == 1; }

  void before_forward(std::int32_t layer, std::int32_t module) const;   ///< dispatch: tokens to the experts' ranks
  void after_forward(std::int32_t layer, std::int32_t module) const;    ///< combine: outputs back to the tokens' ranks
  void before_backward(std::int32_t layer, std::int32_t module) const;  ///< gradients of the outputs to the experts' ranks
  void after_backward(std::int32_t layer, std::int32_t module) const;   ///< gradients of the tokens back

 private:
  void exchange(const char* verb, std::int32_t layer, std::int32_t module) const;
  [[nodiscard]] Elements send_buffer(const LayerType& type, std::int32_t module) const;

  Program& program_;
  std::int64_t size_ = 1, own_ = 0;
  double capacity_factor_ = 0;
  CommunicatorId group_;
  StreamId stream_;
  std::vector<std::int64_t> owner_;  // by parameter: rank in the expert group; own_ for what is not split
};

[[nodiscard]] const std::vector<OptionSpec>& expert_parallel_options();
/// expert_parallel_size must divide the number of experts and the ranks over which they are sharded.
void check_expert_parallel(const Job& job, std::int64_t ranks, Problems& problems);

}  // namespace shardsim
