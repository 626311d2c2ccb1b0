// SPDX-License-Identifier: Apache-2.0
// DeepSpeed ZeRO stage 2: optimizer states and gradients sharded. Gradients are reduced from backward's hooks in every micro-batch (stage 2
// forbids no_sync), and only the parameters that touch the own partition keep theirs. The mechanics are in zero12.cpp.
#include "strategies/deepspeed/zero12.hpp"

namespace shardsim {
namespace {

constexpr int zero2_stage = 2;

std::string zero2_differs(const Job& job) {
  const Zero12Config config = zero12_config(job, zero2_stage);
  if (all_reduces(config)) return "DeepSpeed all-reduces the gradients where the paper reduce-scatters";
  if (config.communication != job.training.precision.gradients) return "gradients are reduced in the communication dtype";
  return {};
}

}  // namespace

StrategyEntry zero2_strategy() {
  return {.info = {.name = "zero2",
                   .summary = "Optimizer states and gradients sharded (DeepSpeed ZeRO stage 2)",
                   .stack = "deepspeed",
                   .library = "DeepSpeed {} (runtime/zero/stage_1_and_2.py, stage 2)",
                   .releases = zero12_releases(),
                   .options = zero12_options(zero2_stage),
                   .facts = {.library = Library::deepspeed,
                             .stage = 2,
                             .names_stage = true,
                             .checkpoints = CheckpointWriter::deepspeed,
                             .offload = OffloadUnit::optimizer}},
          .make = [](Program& program) -> std::unique_ptr<Hooks> {
            return make_deepspeed_zero_optimizer(program, zero12_config(program.job, zero2_stage));
          },
          .check = [](const Job& job, Problems& problems) { check_zero12(job, zero2_stage, problems); },
          .differs_because = zero2_differs,
          .warnings = [](const Job& job) { return zero12_without_effect(job, zero2_stage); }};
}

}  // namespace shardsim
