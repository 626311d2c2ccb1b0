// SPDX-License-Identifier: Apache-2.0
// How each layer of a job is checkpointed.
#pragma once

#include <algorithm>

#include "strategies/strategy.hpp"

namespace shardsim {

/// As the job says, where the layer is a block and its turn.
[[nodiscard]] inline Checkpointing checkpointing_of(const Job& job, std::int32_t layer) {
  const ActivationCheckpointing& ac = job.training.checkpointing;
  const std::vector<Layer>& layers = *job.model->layers;
  const auto is_block = [&](const Layer& l) { return job.model->type_of(l).block; };
  const auto own = layers.begin() + layer;
  if (!is_block(*own)) return Checkpointing::none;
  return ac.every <= 1 || std::count_if(layers.begin(), own, is_block) % ac.every == 0 ? ac.kind : Checkpointing::none;
}

}  // namespace shardsim
