// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"

#include "cli/validate.hpp"

namespace shardsim {

const Command& program() {
  static const Command root{
      .name = "shardsim",
      .summary = "predicts a data-parallel training step before the money is spent",
      .details = "Exact bytes, peak memory and time of one optimizer step: naive data parallelism, DDP, ZeRO-1/2/3, FSDP1/2 and Megatron.",
      .subcommands =
          {
              init_command(),
              simulate_command(),
              compare_command(),
              plan_command(),
              sweep_command(),
              doctor_command(),
              calibrate_command(),
              execute_command(),
              import_command(),
              check_command(),
              validate_command(),
              verify_command(),
              formula_command(),
              list_command(),
              generate_command(),
          },
  };
  return root;
}

}  // namespace shardsim
