// SPDX-License-Identifier: Apache-2.0
#include "strategies/deepspeed/submodule_hooks.hpp"

#include <map>
#include <utility>

#include "strategies/checkpointing.hpp"
#include "strategies/shared/expert_parallel.hpp"

namespace shardsim {

SubmoduleTree::SubmoduleTree(ScheduleBuilder& build, const Job& job) {
  const Model& model = *job.model;
  const ExpertParallel experts(job);
  add(build.unit("model"), {});
  add(build.unit("model.body"), {});
  for (const Layer& layer : *model.layers) {
    const LayerType& type = model.type_of(layer);
    LayerModules modules;
    if (type.block) modules.container = add(build.unit(layer.name), {});
    std::map<std::string, std::int32_t> containers;
    for (const Module& m : type.modules) {
      Place place;
      const bool activation = m.name.ends_with("act_fn") || m.name.ends_with(".act");
      if (!m.parameters.empty() || activation) {
        if (const std::size_t dot = m.name.rfind('.'); dot != std::string::npos) {
          const std::string prefix = m.name.substr(0, dot);
          const auto [known, fresh] = containers.try_emplace(prefix, -1);
          if (fresh) known->second = add(build.unit(layer.name + "." + prefix), {});
          place.container = known->second;
        }
        std::vector<ParameterId> own;
        for (std::int32_t index : m.parameters) own.push_back(layer.parameters[static_cast<std::size_t>(index)]);
        place.leaf = add(build.unit(layer.name + "." + m.name), experts.local(own));
        if (!m.parameters.empty()) modules.first_unpacked = static_cast<std::int32_t>(modules.places.size());
      }
      modules.places.push_back(place);
    }
    layers_.push_back(std::move(modules));
  }
}

std::int32_t SubmoduleTree::add(UnitId name, std::vector<ParameterId> parameters) {
  submodules_.push_back({name, std::move(parameters)});
  return static_cast<std::int32_t>(submodules_.size()) - 1;
}

const Module& SubmoduleHooks::module(std::int32_t l, std::int32_t m) const {
  const Model& model = *job_.model;
  return model.type_of((*model.layers)[static_cast<std::size_t>(l)]).modules[static_cast<std::size_t>(m)];
}

/// Of modules that do no work (inline lists of shapes) nothing is known: as if it had.
bool SubmoduleHooks::input_has_gradient(std::int32_t l, std::int32_t m) const {
  return !module(l, m).backward_input.empty() || module(l, m).forward.empty();
}

bool SubmoduleHooks::has_backward(std::int32_t l, std::int32_t m) const {
  return input_has_gradient(l, m) || !module(l, m).backward_weight.empty();
}

/// Reentrant checkpointing runs the layer again before any backward of its modules.
bool SubmoduleHooks::recomputes_before(std::int32_t l) const {
  return checkpointing_of(job_, l) == Checkpointing::full && job_.training.checkpointing.use_reentrant;
}

/// Else the recomputation starts inside the layer's backward: when the first saved tensor is unpacked.
bool SubmoduleHooks::recomputes_within(std::int32_t l) const {
  const Checkpointing kind = checkpointing_of(job_, l);
  return kind == Checkpointing::selective_ops || (kind == Checkpointing::full && !recomputes_before(l));
}

/// F.linear saves weight.t(), a view of what was gathered; DeepSpeed's replacement saves the parameter itself, whose storage goes when it
/// is released. A forward that will be run again saves nothing.
bool SubmoduleHooks::keeps_weights(std::int32_t l, std::int32_t m, Pass pass) const {
  const Module& of = module(l, m);
  const bool linear = !of.parameters.empty() && !of.forward.products.empty() && !of.routed_experts;
  const bool saves = pass == Pass::recompute || !(recomputes_before(l) || recomputes_within(l));
  return saves && linear && !of.backward_input.empty() && !job_.strategy.options.boolean("memory_efficient_linear", true);
}

void SubmoduleHooks::begin_forward(std::int32_t) {
  fetch(SubmoduleTree::root);
  fetch(SubmoduleTree::body);
}

/// transformers checkpoints `forward`, not `__call__`: hooks of the layer itself do not run again.
void SubmoduleHooks::pre_module_forward(std::int32_t l, std::int32_t m, Pass pass) {
  if (pass == Pass::recompute && m == 0) entered_ = tree_.layer(l);
  enter(l, m);
}

/// The recomputation ends as soon as everything saved is there again (early_stop): within the last such module.
void SubmoduleHooks::post_module_forward(std::int32_t l, std::int32_t m, Pass pass) {
  if (pass == Pass::recompute && recomputes_within(l) && m == tree_.first_unpacked(l)) return;
  if (const std::int32_t leaf = tree_.leaf(l, m); leaf >= 0) release_sub_module(leaf, keeps_weights(l, m, pass));
}

void SubmoduleHooks::begin_backward() {
  fetch(SubmoduleTree::root);
  fetch(SubmoduleTree::body);
}

void SubmoduleHooks::pre_backward(std::int32_t l) {
  if (recomputes_before(l)) return;  // entered before the recomputation
  fetch(tree_.layer(l));
  if (recomputes_within(l)) enter(l, tree_.first_unpacked(l));
}

/// The pre hook runs in the backward of the module's output: not where that needs no gradient.
void SubmoduleHooks::pre_module_backward(std::int32_t l, std::int32_t m) {
  if (!has_backward(l, m)) return;
  if (recomputes_within(l) && m == tree_.first_unpacked(l)) {
    entered_ = tree_.container(l, m);
    return;  // entered before the recomputation
  }
  enter(l, m);
}

/// The post hook runs when the gradient of the module's input is there.
void SubmoduleHooks::post_module_backward(std::int32_t l, std::int32_t m) {
  const std::int32_t leaf = tree_.leaf(l, m);
  if (leaf < 0) return;
  if (input_has_gradient(l, m))
    release_sub_module(leaf, false);
  else if (has_backward(l, m))
    left_behind_.push_back(leaf);
  drop_saved(leaf);
}

/// release_backward_leftovers; before 0.19.3, and so with MiCS, they stayed until the step.
void SubmoduleHooks::end_backward() {
  if (!since(job_, "0.19.3") || job_.strategy.name == "mics") return;
  release_left_behind();
}

void SubmoduleHooks::release_left_behind() {
  for (auto leaf = left_behind_.rbegin(); leaf != left_behind_.rend(); ++leaf) release_sub_module(*leaf, false);
  left_behind_.clear();
}

void SubmoduleHooks::fetch(std::int32_t submodule) {
  entered_ = submodule;
  if (submodule >= 0) fetch_sub_module(submodule);
}

void SubmoduleHooks::enter(std::int32_t l, std::int32_t m) {
  if (tree_.leaf(l, m) < 0) return;
  const std::int32_t container = tree_.container(l, m);
  if (container >= 0 && container != entered_) fetch(container);
  fetch_sub_module(tree_.leaf(l, m));
  entered_ = container;
}

}  // namespace shardsim
