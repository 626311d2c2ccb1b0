// SPDX-License-Identifier: Apache-2.0
// DeepSpeed ZeRO stage 1: optimizer states sharded. Gradients stay whole, accumulate in .grad, and are reduced at the accumulation
// boundary: after backward, or from its hooks with overlap_comm. The mechanics are in zero12.cpp and bf16_optimizer.cpp.
#include "strategies/deepspeed/zero12.hpp"

namespace shardsim {
namespace {

constexpr int zero1_stage = 1;

std::string zero1_differs(const Job& job) {
  const Zero12Config config = zero12_config(job, zero1_stage);
  if (uses_bf16_optimizer(config))
    return "BF16_Optimizer all-reduces the gradients in the communication dtype where the paper reduce-scatters them in the accumulation "
           "dtype";
  if (all_reduces(config)) return "DeepSpeed all-reduces the gradients where the paper reduce-scatters";
  if (config.communication != job.training.precision.gradients) return "gradients are reduced in the communication dtype";
  return {};
}

}  // namespace

StrategyEntry zero1_strategy() {
  return {.info = {.name = "zero1",
                   .summary = "Optimizer states sharded (DeepSpeed ZeRO stage 1)",
                   .stack = "deepspeed",
                   .library = "DeepSpeed {} (runtime/zero/stage_1_and_2.py, stage 1; runtime/bf16_optimizer.py)",
                   .releases = zero12_releases(),
                   .options = zero12_options(zero1_stage),
                   .facts = {.library = Library::deepspeed,
                             .stage = 1,
                             .names_stage = true,
                             .checkpoints = CheckpointWriter::deepspeed,
                             .offload = OffloadUnit::optimizer}},
          .make = [](Program& program) -> std::unique_ptr<Hooks> {
            const Zero12Config config = zero12_config(program.job, zero1_stage);
            return uses_bf16_optimizer(config) ? make_bf16_optimizer(program, config) : make_deepspeed_zero_optimizer(program, config);
          },
          .check = [](const Job& job, Problems& problems) { check_zero12(job, zero1_stage, problems); },
          .differs_because = zero1_differs,
          .warnings = [](const Job& job) { return zero12_without_effect(job, zero1_stage); }};
}

}  // namespace shardsim
