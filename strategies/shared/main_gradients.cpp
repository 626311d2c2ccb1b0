// SPDX-License-Identifier: Apache-2.0
#include "strategies/shared/main_gradients.hpp"

#include <utility>

namespace shardsim {

DType main_gradient_dtype(const Job& job) {
  const Precision& precision = job.training.precision;
  return precision.name == "mixed" && precision.parameters == DType::bf16 ? DType::fp32 : precision.gradients;
}

void MainGradients::produce(ParameterId p) {
  ScheduleBuilder& build = program_.build;
  const Parameter& parameter = program_.model().at(p);
  gradients_[static_cast<std::size_t>(p.index)] =
      build.allocate({.label = {".grad", program_.unit(p)},
                      .category = Category::unsharded_gradients,
                      .role = Role::gradient,
                      .dtype = program_.training().precision.parameters,
                      .pool = ScheduleBuilder::compute_stream(),
                      .layout = build.layout({.parameters = build.parameters(std::span(&p, 1))}),
                      .elements = parameter.elements});
}

void MainGradients::add_to(BufferId main_grad, ParameterId p) {
  ScheduleBuilder& build = program_.build;
  const BufferId gradient = std::exchange(gradients_[static_cast<std::size_t>(p.index)], {});
  build.copy({"main_grad.add_", program_.unit(p)}, ScheduleBuilder::compute_stream(),
             {.source = gradient, .target = main_grad, .count = program_.model().at(p).elements, .accumulate = true});
  build.free(gradient);
}

}  // namespace shardsim
