// SPDX-License-Identifier: Apache-2.0
#include "studies/formula/symbols.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "strategies/shared/optimizer_step.hpp"
#include "strategies/textbook/textbook.hpp"

namespace shardsim {
namespace {

struct LayerSizes {
  std::int64_t blocks = 0;
  Elements in_blocks;
  Elements largest;
};

LayerSizes sizes_of(const Model& model) {
  LayerSizes sizes;
  std::set<ParameterId> seen;  // a shared parameter counts once
  for (const Layer& layer : *model.layers) {
    if (!model.type_of(layer).block) continue;
    ++sizes.blocks;
    Elements own;
    for (const ParameterId id : layer.parameters) {
      own += model.at(id).elements;
      if (seen.insert(id).second) sizes.in_blocks += model.at(id).elements;
    }
    sizes.largest = std::max(sizes.largest, own);
  }
  return sizes;
}

}  // namespace

Symbols symbols_of(const Job& job) {
  const Model& model = *job.model;
  const Precision& precision = job.training.precision;
  const TextbookPlan plan = textbook_plan(job);
  const LayerSizes sizes = sizes_of(model);
  const ExactNumber moments = ExactNumber::parse(fmt::format("{}", state_bytes_per_element(job.training))).value();
  return {{"psi", model.total().value()},
          {"psi_trainable", model.trainable().value()},
          {"root", (model.total() - sizes.in_blocks).value()},
          {"block", sizes.largest.value()},
          {"layers", sizes.blocks},
          {"n", job.world_size},
          {"s", plan.shard},
          {"r", plan.replicas},
          {"g", job.training.gradient_accumulation_steps},
          {"e_p", size_of(precision.parameters)},
          {"e_g", size_of(precision.gradients)},
          {"e_r", size_of(reduction_dtype(job))},
          {"k", moments + ExactNumber(precision.master ? size_of(*precision.master) : 0)}};
}

}  // namespace shardsim
