// SPDX-License-Identifier: Apache-2.0
// FSDP as accelerate, the Trainer and axolotl configure it: one block, whose keys may start with fsdp_.
#pragma once

#include "scenarios/importers/foreign_map.hpp"

namespace shardsim {

struct FsdpContext {
  std::string dtype = "no";  ///< mixed_precision: no, bf16 or fp16
  std::int64_t nodes = 0;    ///< where hybrid sharding replicates; 0: one
  std::int64_t version = 1;  ///< where the block does not say
  std::string sharding{};    ///< a strategy named outside of the block ("full_shard")
  bool offload = false;
  bool checkpointing = false;  ///< asked for outside of the block
};

/// Precision, strategy, checkpointing and offload of the draft from an fsdp_config.
void draft_fsdp(ForeignMap& block, ScenarioDraft& draft, const FsdpContext& context);

/// fp32 parameters under autocast in `dtype` ("no": fp32).
[[nodiscard]] std::string autocast_precision(std::string_view dtype);

}  // namespace shardsim
