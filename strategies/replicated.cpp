// SPDX-License-Identifier: Apache-2.0
#include "strategies/replicated.hpp"

namespace shardsim {

Replicated::Replicated(Program& program) : program_(program), trainable_(parameters_where(program.model(), true)), optimizer_(program) {
  const Precision& precision = program.training().precision;
  const std::vector<ParameterId> frozen = parameters_where(program.model(), false);
  parameters_ = declare("parameters", Category::parameters, Role::parameter, precision.parameters, trainable_);
  if (!frozen.empty()) frozen_ = declare("frozen parameters", Category::parameters, Role::parameter, precision.parameters, frozen);
  if (precision.master) master_ = declare("master copy", Category::optimizer_states, Role::none, *precision.master, trainable_);
  gradients_.resize(program.model().parameters->size());
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
  const BufferId weights = master_.valid() ? master_ : parameters_;
  const Buffer& buffer = program_.build.schedule().at(weights);
  optimizer_.add({.label = {"optimizer", {}}, .parameters = trainable_, .weights = weights, .layout = buffer.layout,
                  .count = buffer.elements, .dtype = buffer.dtype});
}

BufferId Replicated::gradient(ParameterId parameter) {
  BufferId& gradient = gradients_[static_cast<std::size_t>(parameter.index)];
  if (gradient.valid()) return gradient;
  ScheduleBuilder& build = program_.build;
  Buffer buffer{.label = {".grad", build.unit(program_.model().at(parameter).name)},
                .category = Category::gradients,
                .role = Role::gradient,
                .persistent = !program_.training().optimizer.set_to_none,
                .dtype = gradient_dtype(),
                .pool = ScheduleBuilder::compute_stream(),
                .layout = build.layout({.parameters = build.parameters(std::span(&parameter, 1))}),
                .elements = program_.model().at(parameter).elements};
  gradient = buffer.persistent ? build.buffer(buffer) : build.allocate(buffer);
  return gradient;
}

void Replicated::free_gradient(ParameterId parameter) {
  BufferId& gradient = gradients_[static_cast<std::size_t>(parameter.index)];
  program_.build.free(gradient);
  gradient = {};
}

void Replicated::step() {
  OptimizerStep::Gradients all;
  for (ParameterId p : trainable_) {
    if (!has_gradient(p)) continue;  // no gradient reached it: the optimizer skips it, as torch does for .grad None
    all.buffers.push_back(gradients_[static_cast<std::size_t>(p.index)]);
    all.counts.push_back(program_.model().at(p).elements);
  }
  update(all);
  zero_grad(program_, all.buffers);
  for (ParameterId p : trainable_) gradients_[static_cast<std::size_t>(p.index)] = {};
}

void Replicated::step(const OptimizerStep::Gradients& gradients) { update(gradients); }

void Replicated::update(const OptimizerStep::Gradients& gradients) {
  optimizer_.clip({gradients}, {}, {}, gradient_dtype(), false);
  optimizer_.emit({gradients});
  if (master_.valid())
    program_.build.copy({"master to parameters", {}}, ScheduleBuilder::compute_stream(),
                        {.source = master_, .target = parameters_, .count = program_.build.schedule().at(parameters_).elements});
}

}  // namespace shardsim
