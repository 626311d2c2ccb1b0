// SPDX-License-Identifier: Apache-2.0
// What a plan holds fixed and what it may choose: the `plan:` block of a scenario, with a default for everything that is not said.
//
//   plan:
//     global_batch: 1024                # sequences per optimizer step; default: what the scenario comes to
//     tokens: 1e12                      # to train on; default: 20 per parameter; fine-tuning: epochs x samples x sequence length
//     epochs: 3                         # of a data set of so many
//     samples: 52000                    # sequences
//     headroom: 8 %                     # of the device's and the host's memory that stays free
//     days: 90                          # within which training is to end
//     nodes: [1, 2, 4, 8]               # default: powers of two, and parts of one node
//     strategies: [ddp, zero3, fsdp2]   # default: those of the library that the scenario's strategy is of; or: all
//     micro_batch_sizes: [1, 2, 4]      # default: all that divide a rank's share of the global batch
//     activation_checkpointing: [none, full]
//     offload: [none, optimizer, all]   # default: none
//     hybrid: true                      # also shard inside a node and replicate across nodes
//     price_per_gpu_hour: 2.50
//     node_mtbf: 6300 h
//     restart: 10 min
//     checkpoint_interval: 30 min       # default: Daly's optimum
//     checkpoint_bandwidth: 2 GB/s      # that one node writes
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/reader/scenario.hpp"

namespace shardsim {

/// Numbers of GPUs beyond this are slips of the pen.
inline constexpr std::int64_t most_gpus = std::int64_t{1} << 24;

struct PlanRequest {
  std::int64_t global_batch = 1;  ///< sequences per optimizer step
  double tokens = 0;
  std::optional<double> days;  ///< within which training is to end
  std::vector<std::int64_t> nodes;
  bool parts_of_a_node = true;  ///< one node may be used in part
  std::vector<std::string> strategies;
  std::vector<std::string> others;          ///< strategies of other libraries, looked at apart; empty where the user chose
  double headroom = 0.08;                   ///< share of memory that stays free
  std::vector<std::int64_t> micro_batches;  ///< empty: all that divide
  std::vector<std::string> checkpointing;   ///< values of training.activation_checkpointing
  std::vector<std::string> offload;         ///< values of training.offload
  bool hybrid = true;
  std::optional<double> price_per_gpu_hour;
  Seconds node_mtbf, restart;
  std::optional<Seconds> checkpoint_interval;
  ByteRate checkpoint_bandwidth;
  std::vector<std::string> assumptions;  ///< what was not said, as sentences
};

[[nodiscard]] Result<PlanRequest> read_plan(const Scenario& scenario);

}  // namespace shardsim
