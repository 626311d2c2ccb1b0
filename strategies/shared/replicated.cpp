// SPDX-License-Identifier: Apache-2.0
#include "strategies/shared/replicated.hpp"

#include <algorithm>
#include <utility>

#include "strategies/shared/expert_parallel.hpp"
#include "strategies/shared/muon.hpp"

namespace shardsim {

Replicated::Replicated(Program& program, LocalUpdate local)
    : program_(program),
      own_dtype_(own_dtype_of_trained(program.model())),
      local_(std::move(local)),
      trainable_(ExpertParallel(program.job).local(parameters_where(program.model(), true))),
      updated_(program.model().parameters->size()),
      gradients_(program.model().parameters->size()),
      optimizer_(program) {
  const Precision& precision = program.training().precision;
  if (runs_keller_jordan(program.job)) local_ = keller_jordan_update(program);
  if (!local_.synchronize && !overlapped()) local_ = {.storage = trainable_, .updated = trainable_};
  for (ParameterId p : local_.updated) updated_[static_cast<std::size_t>(p.index)] = true;
  const std::vector<ParameterId> frozen = ExpertParallel(program.job).local(parameters_where(program.model(), false));
  parameters_ = declare("parameters", Category::parameters, Role::parameter, own_dtype_.value_or(precision.parameters), local_.storage);
  if (!frozen.empty()) frozen_ = declare("frozen parameters", Category::parameters, Role::parameter, precision.parameters, frozen);
  if (precision.master && own_dtype_ != precision.master && !overlapped())
    master_ = declare("master copy", Category::optimizer_states, Role::none, *precision.master, local_.updated);
}

BufferId Replicated::declare(const char* verb, Category category, Role role, DType dtype, const std::vector<ParameterId>& ids) {
  ScheduleBuilder& build = program_.build;
  const LayoutId layout = build.layout({.parameters = build.parameters(ids)});
  return build.buffer({.label = {verb, {}},
                       .category = category,
                       .role = role,
                       .persistent = true,
                       .dtype = dtype,
                       .pool = ScheduleBuilder::compute_stream(),
                       .layout = layout,
                       .elements = total_elements(program_.model(), ids)});
}

void Replicated::add_optimizer() {
  if (overlapped()) return;  // whoever steps bucket by bucket declares the states
  const BufferId weights = master_.valid() ? master_ : local_.synchronize ? view_of_updated() : parameters_;
  const Buffer& buffer = program_.build.schedule().at(weights);
  optimizer_.add({.label = {"optimizer", {}},
                  .parameters = local_.updated,
                  .weights = weights,
                  .layout = buffer.layout,
                  .count = buffer.elements,
                  .dtype = buffer.dtype});
}

/// The parameters that this rank updates stand one after another in memory.
BufferId Replicated::view_of_updated() {
  ScheduleBuilder& build = program_.build;
  const auto before = std::find_if(local_.storage.begin(), local_.storage.end(), [&](ParameterId p) { return updates(p); });
  Buffer view = build.schedule().at(parameters_);
  view.label.verb = "updated parameters";
  view.role = Role::none;
  view.layout = build.layout({.parameters = build.parameters(local_.updated)});
  view.elements = total_elements(program_.model(), local_.updated);
  view.view_of = parameters_;
  view.view_offset = total_elements(program_.model(), std::span(local_.storage.begin(), before));
  return build.buffer(view);
}

BufferId Replicated::gradient(ParameterId parameter, bool moves) {
  BufferId& gradient = gradients_[static_cast<std::size_t>(parameter.index)];
  if (gradient.valid()) return gradient;
  ScheduleBuilder& build = program_.build;
  Buffer buffer{.label = {".grad", program_.unit(parameter)},
                .category = Category::gradients,
                .role = Role::gradient,
                .persistent = !moves && !program_.training().optimizer.set_to_none,
                .dtype = gradient_dtype(),
                .pool = ScheduleBuilder::compute_stream(),
                .layout = build.layout({.parameters = build.parameters(std::span(&parameter, 1))}),
                .elements = program_.model().at(parameter).elements};
  gradient = build.buffer(buffer);
  if (!buffer.persistent || !program_.training().warm) build.allocate(gradient);  // warm and kept: there since the first backward
  return gradient;
}

void Replicated::free_gradient(ParameterId parameter) {
  BufferId& gradient = gradients_[static_cast<std::size_t>(parameter.index)];
  program_.build.free(gradient);
  gradient = {};
}

void Replicated::step() {
  OptimizerStep::Gradients all, own;
  for (ParameterId p : trainable_) {
    if (!has_gradient(p)) continue;  // no gradient reached it: the optimizer skips it, as torch does for .grad None
    for (OptimizerStep::Gradients* list : {&all, &own}) {
      if (list == &own && !updates(p)) continue;
      list->buffers.push_back(gradients_[static_cast<std::size_t>(p.index)]);
      list->counts.push_back(program_.model().at(p).elements);
    }
  }
  step(all, own);
  zero_grad(program_, all.buffers);
  for (ParameterId p : trainable_) gradients_[static_cast<std::size_t>(p.index)] = {};
}

void Replicated::step(const OptimizerStep::Gradients& all, const OptimizerStep::Gradients& own) {
  if (overlapped()) return;
  optimizer_.unscale({all}, {}, gradient_dtype());
  optimizer_.clip({all}, {}, {}, gradient_dtype(), false);
  if (runs_dion(program_.job)) {
    optimizer_.updates_are_orthogonal();
    const std::int64_t ranks = program_.job.world_size;
    dion_updates(program_, muon_matrices(program_.model()),
                 {.communicator = program_.build.communicator("dp", "dp", ranks), .ranks = ranks});
  }
  optimizer_.emit({own});
  if (master_.valid())
    program_.build.copy({"master to parameters", {}}, ScheduleBuilder::compute_stream(),
                        {.source = master_, .target = parameters_, .count = program_.build.schedule().at(master_).elements});
  if (local_.synchronize) local_.synchronize(parameters_);
}

}  // namespace shardsim
