// SPDX-License-Identifier: Apache-2.0
// What DeepSpeed's optimizers of stages 1 and 2 hold for each optimizer param group: one flat buffer of 16-bit parameters, and this
// rank's partition of the master weights. Shared by DeepSpeedZeroOptimizer and BF16_Optimizer.
// Source: DeepSpeed runtime/zero/stage_1_and_2.py (__init__), runtime/bf16_optimizer.py (_setup_for_real_optimizer), runtime/utils.py.
#pragma once

#include <memory>
#include <vector>

#include "strategies/shared/expert_parallel.hpp"
#include "strategies/shared/optimizer_step.hpp"

namespace shardsim {

/// Parameters of each optimizer param group, in the order given to the optimizer: registration order; with split weight decay the
/// matrices (embeddings too) first, then biases and norms, as Hugging Face's Trainer builds them. Empty groups are left out.
[[nodiscard]] std::vector<std::vector<ParameterId>> optimizer_param_groups(const Model& model, bool split_weight_decay);

/// A run of elements of one parameter's gradient that one rank's partition holds.
struct PartitionSlice {
  std::int64_t owner = 0;  ///< partition_id: place in the param group's ranks
  std::int64_t first = 0;  ///< grad_start_offset: element of the parameter
  std::int64_t length = 0;
};

/// One param group, flattened. Rank r owns elements [r F / N, (r + 1) F / N); a parameter may straddle ranks.
struct FlatGroup {
  UnitId name{};
  RankGroup ranks{};                      ///< over which it is partitioned (real_dp_process_group)
  bool experts = false;                   ///< routed experts that are split: partitioned over the ranks that hold the same ones
  std::vector<ParameterId> parameters{};  ///< bit16_groups: the optimizer's order
  std::vector<ParameterId> flat_order{};  ///< round_robin_bit16_groups: the order in the flat buffer
  ParameterSpan span{};                   ///< of flat_order
  Elements flat{};                        ///< F: padded to a multiple of 2 N (nccl_start_alignment_factor)
  Elements partition{};                   ///< F / N
  std::int64_t own_slices = 0;            ///< tensors of averaged_gradients: parts of parameters in this rank's partition, and padding
  Elements largest_own_slice{};
  BufferId bit16{};   ///< bit16_groups_flat
  BufferId master{};  ///< single_partition_of_fp32_groups
  LayoutId shard{};   ///< of the partition
  std::unique_ptr<OptimizerStep> optimizer{};
};

struct FlatGroupsConfig {
  DType model = DType::bf16;
  DType master = DType::fp32;
  bool round_robin = false;
};

class FlatGroups {
 public:
  /// Declares the flat buffers, the frozen parameters beside them, and the master partitions with their optimizer states.
  FlatGroups(Program& program, const FlatGroupsConfig& config);

  [[nodiscard]] std::vector<FlatGroup>& all() { return groups_; }
  [[nodiscard]] const std::vector<FlatGroup>& all() const { return groups_; }
  [[nodiscard]] std::size_t group_of(ParameterId p) const { return place_[static_cast<std::size_t>(p.index)].group; }
  /// First element of the parameter in its group's flat buffer.
  [[nodiscard]] std::int64_t start_of(ParameterId p) const { return place_[static_cast<std::size_t>(p.index)].start; }
  /// param_to_partition_ids with offsets, in the order of the parameter's elements.
  [[nodiscard]] std::vector<PartitionSlice> slices(ParameterId p) const;
  /// The slice that this rank owns; length 0 if none.
  [[nodiscard]] PartitionSlice own_slice(ParameterId p) const;
  /// is_param_in_current_partition.
  [[nodiscard]] bool owned(ParameterId p) const { return own_slice(p).length > 0; }
  [[nodiscard]] const RankGroup& ranks_of(ParameterId p) const { return groups_[group_of(p)].ranks; }
  [[nodiscard]] CommunicatorId communicator() const { return dp_.communicator; }

  /// all_gather_dp_groups: one all-gather a group, in place over the whole flat buffer, on the current stream; none on a single rank.
  void all_gather();

 private:
  struct Place {
    std::size_t group = 0;
    std::int64_t start = 0;
  };

  void add_group(std::vector<ParameterId> parameters, const RankGroup& ranks, bool experts);
  void add_expert_groups(const ExpertParallel& experts, const std::vector<std::vector<ParameterId>>& groups);
  void declare_buffers(FlatGroup& group);
  void count_own_slices(FlatGroup& group) const;
  void add_optimizer(FlatGroup& group);

  Program& program_;
  FlatGroupsConfig config_;
  RankGroup dp_;
  std::vector<FlatGroup> groups_;
  std::vector<Place> place_;  // by parameter
};

}  // namespace shardsim
