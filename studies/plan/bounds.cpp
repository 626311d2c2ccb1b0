// SPDX-License-Identifier: Apache-2.0
#include "studies/plan/bounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/costs/checked_time.hpp"
#include "sim/costs/cost_model.hpp"
#include "studies/compare/variant.hpp"

namespace shardsim {
namespace {

/// Experts of an expert-parallel job run elsewhere: their work and tensors are not counted.
bool counted(const Scenario& s, const Module& module) {
  return !module.routed_experts || !s.strategy.options.given("expert_parallel_size");
}

bool recomputed(Checkpointing kind, const Module& module) {
  switch (kind) {
    case Checkpointing::none:
      return false;
    case Checkpointing::core_attention:
      return module.core_attention;
    case Checkpointing::selective_ops:
      return !module.kept_by_selective;
    case Checkpointing::full:
      return true;
  }
  return false;
}

/// Kernels of one layer, as the training loop issues them. `first`: nothing needs the gradient of the model's own input.
SimTime layer_time(const Scenario& s, const CostModel& costs, const LayerType& type, Checkpointing kind, bool trains, bool first) {
  SimTime time;
  for (std::size_t m = 0; m < type.modules.size(); ++m) {
    const Module& module = type.modules[m];
    if (!counted(s, module)) continue;
    const SimTime forward = checked_time(costs.work(module.forward));
    time += forward;
    if (!trains) continue;  // which backward passes a frozen layer runs is not settled here
    if (recomputed(kind, module)) time += forward;
    Work backward = first && m == 0 ? Work{} : module.backward_input;
    backward += module.backward_weight;
    time += checked_time(costs.work(backward));
  }
  return time;
}

/// Tensors of one layer that wait for backward. A layer's output is the next one's input and counted there.
Bytes layer_tensors(const Scenario& s, const LayerType& type, Checkpointing kind) {
  Bytes sum;
  for (const Tensor& tensor : type.tensors) {
    const bool output = tensor.producer >= 0 && tensor.last_consumer == static_cast<std::int32_t>(type.modules.size());
    const bool fused = s.training.compile && tensor.fused_away;
    const bool elsewhere = tensor.producer >= 0 && !counted(s, type.modules[static_cast<std::size_t>(tensor.producer)]);
    if (!output && !fused && !elsewhere && is_kept(kind, tensor)) sum += bytes(tensor.elements, tensor.dtype);
  }
  return sum;
}

/// The stack that a candidate is run by where the scenario leaves it to the strategy; empty where it does not.
std::string usual_stack(const Scenario& base, const std::string& strategy) {
  const ConfigNode* training = base.root.find("training");
  const ConfigNode* written = training ? training->find("stack") : nullptr;
  const StrategyInfo* info = find_strategy(strategy);
  return info && (!written || written->kind == ConfigNode::Kind::null) ? info->stack : std::string();
}

}  // namespace

const LowerBounds::Share& LowerBounds::share(const Candidate& candidate) {
  const std::string stack = usual_stack(base_, candidate.strategy);
  const auto [place, fresh] = shares_.try_emplace({candidate.micro_batch, candidate.checkpointing, stack});
  Share& share = place->second;
  if (!fresh) return share;
  std::vector<std::string> changes{fmt::format("training.micro_batch_size={}", candidate.micro_batch),
                                   "training.activation_checkpointing=" + candidate.checkpointing};
  if (!stack.empty()) changes.push_back("training.stack=" + stack);
  const auto scenario = vary(base_, changes);
  if (!scenario) return share;  // the base's own strategy refuses: zero is a bound, too
  const Model& model = *scenario->model;
  const bool trains = model.trainable() == model.total();
  const ActivationCheckpointing& checkpointing = scenario->training.checkpointing;
  const CostModel costs(scenario->cluster, *scenario->stack);
  std::map<std::tuple<std::int32_t, bool, bool>, std::pair<SimTime, Bytes>> known;  // by type, checkpointed or not, first or not
  SimTime time;
  std::int32_t block = 0;
  bool first = true;
  for (const Layer& layer : *model.layers) {
    const LayerType& type = model.type_of(layer);
    const bool checkpointed = type.block && block++ % std::max(checkpointing.every, 1) == 0;
    const Checkpointing kind = checkpointed ? checkpointing.kind : Checkpointing::none;
    const auto [found, added] = known.try_emplace({layer.type, checkpointed, first});
    if (added)
      found->second = {layer_time(*scenario, costs, type, kind, trains, first), trains ? layer_tensors(*scenario, type, kind) : Bytes{}};
    time += found->second.first;
    share.activations += found->second.second;
    first = false;
  }
  share.micro_batch = time.seconds();
  return share;
}

Bytes LowerBounds::states(const Candidate& candidate) const {
  const Training& training = base_.training;
  if (candidate.offload != "none" || !training.warm) return {};
  const Precision& precision = training.precision;
  const std::int64_t psi = base_.model->total().value(), trainable = base_.model->trainable().value(), n = candidate.gpus();
  const bool adam = training.optimizer.kind == OptimizerKind::adam || training.optimizer.kind == OptimizerKind::adamw;
  const std::int64_t parameter = size_of(precision.parameters), master = precision.master ? size_of(*precision.master) : 0;
  const std::int64_t moments = adam ? 2 * size_of(precision.moments) : 0;
  const std::int64_t least = master > 0 ? std::min(parameter, master) : parameter;  // FSDP's shard is the master copy
  const bool split = base_.strategy.options.given("expert_parallel_size");          // experts of other ranks are not held
  const std::int64_t parameters = facts_of(candidate.strategy).stage < 3 && !split ? psi * parameter : psi * least / n;
  return Bytes{parameters + (facts_of(candidate.strategy).stage == 0 && !split ? trainable * moments : trainable * moments / n)};
}

LowerBound LowerBounds::operator()(const Candidate& candidate) {
  const Share& one = share(candidate);
  return {one.micro_batch * static_cast<double>(candidate.accumulation), states(candidate) + one.activations};
}

}  // namespace shardsim
