// SPDX-License-Identifier: Apache-2.0
// DeepSpeed ZeRO stages 1 and 2: what both entries of the table share. Options and their checks (zero12_options.cpp), and the two
// optimizers: DeepSpeedZeroOptimizer (zero12.cpp) and, at stage 1 with fp32 gradient accumulation, BF16_Optimizer (bf16_optimizer.cpp).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strategies/hooks.hpp"
#include "strategies/strategy_table.hpp"

namespace shardsim {

/// The `zero_optimization` block and the dtypes of one job, resolved. Source: DeepSpeed runtime/zero/config.py, runtime/engine.py.
struct Zero12Config {
  int stage = 1;
  Elements reduce_bucket_size{500'000'000};
  bool overlap_comm = false;         ///< None means False at stages 1 and 2
  bool contiguous_gradients = true;  ///< forced by CPU offload
  bool reduce_scatter = true;
  bool use_multi_rank_bucket_allreduce = true;
  bool round_robin_gradients = false;
  bool tests_extremes = true;             ///< has_inf_or_nan of the largest and the smallest element; before 0.19.6 of every one
  bool buckets_on_first_gradient = true;  ///< before 0.16.5 they were allocated before backward
  bool check_grad_overflow = true;        ///< fp16 always; bf16 since 2026-06-26; fp32 never
  bool offload = false;                   ///< offload_optimizer to the CPU
  DType model = DType::bf16;              ///< of parameters and their gradients
  DType accumulation = DType::bf16;       ///< grad_accum_dtype
  DType communication = DType::bf16;      ///< communication_data_type
  DType master = DType::fp32;             ///< of the partitions that the optimizer updates

  /// Gradients are reduced from autograd's hooks, in arrival order; else after backward, in the optimizer's order.
  [[nodiscard]] bool reduces_in_hooks() const { return stage == 2 || overlap_comm; }
  /// use_grad_accum_attribute: gradients add up in a buffer of their own dtype.
  [[nodiscard]] bool separate_accumulation() const { return stage == 1 && accumulation != model; }
  /// Dtype of averaged_gradients: what has passed through an ipg buffer is in the model's.
  [[nodiscard]] DType averaged() const { return separate_accumulation() && !contiguous_gradients ? accumulation : model; }
};
[[nodiscard]] Zero12Config zero12_config(const Job& job, int stage);

/// DeepSpeedEngine._do_optimizer_sanity_check: bf16 model, fp32 accumulation, stage 1, nothing offloaded.
[[nodiscard]] bool uses_bf16_optimizer(const Zero12Config& config);

[[nodiscard]] std::unique_ptr<Hooks> make_deepspeed_zero_optimizer(Program& program, const Zero12Config& config);
[[nodiscard]] std::unique_ptr<Hooks> make_bf16_optimizer(Program& program, const Zero12Config& config);

[[nodiscard]] std::vector<Release> zero12_releases();
[[nodiscard]] std::vector<OptionSpec> zero12_options(int stage);
/// What DeepSpeed asserts.
void check_zero12(const Job& job, int stage, Problems& problems);
/// Options that its code does not read in this job.
[[nodiscard]] std::vector<std::string> zero12_without_effect(const Job& job, int stage);
/// The reduction really is an all-reduce, unless the job switches to one reduce for each owner.
[[nodiscard]] bool all_reduces(const Zero12Config& config);

}  // namespace shardsim
