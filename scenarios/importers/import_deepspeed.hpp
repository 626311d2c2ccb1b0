// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's configuration, also where accelerate's file points to one.
#pragma once

#include "scenarios/importers/import_draft.hpp"

namespace shardsim {

/// What is known when a DeepSpeed configuration is read: zeros are unknown.
struct DeepSpeedContext {
  ModelFacts model;
  std::int64_t nodes = 0, gpus_per_node = 0;
};

/// Fills cluster, training and strategy of the draft (the model is there already) from the tree of a DeepSpeed configuration.
/// Problems: values that cannot be what DeepSpeed accepts, a batch that no number of GPUs gives.
[[nodiscard]] Problems draft_deepspeed(const ConfigNode& root, ScenarioDraft& draft, const DeepSpeedContext& context,
                                       const ImportOptions& options);

}  // namespace shardsim
