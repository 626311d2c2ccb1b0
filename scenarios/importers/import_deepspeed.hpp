// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's configuration, also where another tool's file holds it or points to one.
#pragma once

#include "scenarios/importers/foreign_map.hpp"

namespace shardsim {

/// What is known when a DeepSpeed configuration is read: zeros are unknown, empty words too.
struct DeepSpeedContext {
  ModelFacts model{};
  std::int64_t nodes = 0, gpus_per_node = 0;
  // What "auto" stands for: the arguments of the Trainer.
  std::int64_t micro_batch = 0, accumulation = 0;
  std::optional<double> clip{};
  std::string dtype{};      ///< fp32, bf16 or fp16
  std::string optimizer{};  ///< the Trainer's optim, where the file has no optimizer
};

/// Fills cluster, training and strategy of the draft (the model is there already) from the tree of a DeepSpeed configuration.
/// Problems: values that cannot be what DeepSpeed accepts, a batch that no number of GPUs gives.
void draft_deepspeed(const ConfigNode& root, ScenarioDraft& draft, const DeepSpeedContext& context, const ImportOptions& options);

/// DeepSpeed's JSON, which it reads as hjson: comments of three kinds and commas before a closing bracket are allowed.
[[nodiscard]] Result<ConfigNode> read_deepspeed_json(const Source& source);

/// A DeepSpeed configuration that another file names, looked for in the current folder, beside that file, and by its last part.
[[nodiscard]] std::optional<ConfigNode> read_deepspeed_file(const ConfigNode& name, ScenarioDraft& draft);

}  // namespace shardsim
