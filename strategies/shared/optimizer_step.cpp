// SPDX-License-Identifier: Apache-2.0
#include "strategies/shared/optimizer_step.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "strategies/shared/muon.hpp"
#include "strategies/shared/sharding.hpp"

namespace shardsim {
namespace {

using Implementation = Optimizer::Implementation;

DType moment_dtype(const Training& training) {
  return training.optimizer.kind == OptimizerKind::adamw_8bit ? DType::int8 : training.precision.moments;
}

/// How often a foreach or for-loop step touches one element, in units of one read or write of the weights' dtype. Fused kernels touch
/// each of p, g, m, v once to read, and p, m, v once to write.
/// adamw (torch/optim/adamw.py, _multi_tensor_adamw): mul p 2, lerp m 3, mul v 2, addcmul v 3, sqrt 2, div 2, add 2, addcdiv 4.
double touches(OptimizerKind kind, Implementation implementation) {
  const bool fused = implementation == Implementation::fused;
  switch (kind) {
    case OptimizerKind::sgd:
      return 3;
    case OptimizerKind::momentum:
      return fused ? 5 : 6;
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return fused ? 7 : 20;
    case OptimizerKind::adamw_8bit:
      return 5;
    case OptimizerKind::lion:
      return fused ? 5 : 12;
    case OptimizerKind::adafactor:
      return 12;
    case OptimizerKind::muon:
      return 6;
  }
  return 7;
}

std::int32_t kernels(OptimizerKind kind, Implementation implementation, std::size_t tensors) {
  const auto n = static_cast<std::int32_t>(tensors);
  if (implementation == Implementation::fused || kind == OptimizerKind::adamw_8bit) return std::max(1, n / 30);
  const std::int32_t passes = kind == OptimizerKind::sgd ? 1 : kind == OptimizerKind::momentum ? 2 : 8;
  return implementation == Implementation::for_loop ? passes * n : passes * std::max(1, n / 30);  // ~30 tensors a multi-tensor launch
}

}  // namespace

int moment_count(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::sgd:
      return 0;
    case OptimizerKind::momentum:
    case OptimizerKind::lion:
    case OptimizerKind::muon:
      return 1;
    case OptimizerKind::adafactor:
      return 0;
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
    case OptimizerKind::adamw_8bit:
      return 2;
  }
  return 0;
}

double state_bytes_per_element(const Training& training) {
  return moment_count(training.optimizer.kind) * static_cast<double>(size_of(moment_dtype(training)));
}

/// Adafactor keeps a row and a column of second moments for each matrix, and all of them for vectors; a shard keeps its share.
/// Source: transformers/optimization.py, Adafactor (no momentum).
static Elements factored_elements(const Model& model, const OptimizerTarget& target) {
  std::int64_t states = 0, whole = 0;
  for (ParameterId p : target.parameters) {
    const Parameter& parameter = model.at(p);
    const std::int64_t n = parameter.elements.value(), columns = parameter.matrix() ? parameter.shape.back() : n;
    states += parameter.matrix() ? n / columns + columns : n;
    whole += n;
  }
  return Elements{whole == 0 ? 0 : ceil_div(states * target.count.value(), whole)};
}

OptimizerStep::OptimizerStep(Program& program) : program_(program), own_dtype_(own_dtype_of_trained(program.model())) {
  if (program.training().optimizer.kind == OptimizerKind::muon) orthogonal_ = orthogonalized_parameters(program.model());
}

bool OptimizerStep::orthogonalizes(ParameterId parameter) const {
  return !orthogonal_.empty() && orthogonal_[static_cast<std::size_t>(parameter.index)];
}

/// What of a target the optimizer updates element by element: all, but for muon's matrices, of which a shard has its share.
Elements OptimizerStep::element_wise(const OptimizerTarget& target) const {
  std::int64_t rest = 0, whole = 0;
  for (ParameterId p : target.parameters) {
    const std::int64_t n = program_.model().at(p).elements.value();
    rest += orthogonalizes(p) ? 0 : n;
    whole += n;
  }
  if (rest == whole) return target.count;
  return Elements{static_cast<std::int64_t>((static_cast<__int128>(rest) * target.count.value() + whole - 1) / whole)};
}

/// PyTorch makes states like the tensor that they belong to: of adapters, in their own dtype.
DType OptimizerStep::moments_dtype() const {
  const Training& training = program_.training();
  const bool own = own_dtype_ && !training.precision.master && training.optimizer.kind != OptimizerKind::adamw_8bit;
  return own ? *own_dtype_ : moment_dtype(training);
}

void OptimizerStep::add(OptimizerTarget target) {
  ScheduleBuilder& build = program_.build;
  const int moments = moment_count(program_.training().optimizer.kind);
  const bool factored = program_.training().optimizer.kind == OptimizerKind::adafactor;
  const auto declare = [&](const char* verb, std::optional<Elements> part = {}) {
    return build.buffer({.label = {verb, target.label.unit},
                         .category = Category::optimizer_states,
                         .persistent = true,
                         .host = program_.training().offload.optimizer != OffloadTarget::none,
                         .dtype = moments_dtype(),
                         .pool = ScheduleBuilder::compute_stream(),
                         .layout = part ? LayoutId{} : target.layout,
                         .elements = part.value_or(target.count)});
  };
  const Elements rest = element_wise(target);
  if (factored)
    moments_.push_back({declare("exp_avg_sq row and column", factored_elements(program_.model(), target)), BufferId{}});
  else if (!orthogonal_.empty())
    moments_.push_back({declare("momentum"), rest > Elements{} ? declare("exp_avg_sq of AdamW's part", rest) : BufferId{}});
  else
    moments_.push_back({moments > 0 ? declare("exp_avg") : BufferId{}, moments > 1 ? declare("exp_avg_sq") : BufferId{}});
  targets_.push_back(std::move(target));
}

Elements OptimizerStep::temporary_elements(std::size_t first, std::size_t last) const {
  Elements sum, largest;
  for (std::size_t t = first; t < last; ++t) {
    const OptimizerTarget& target = targets_[t];
    sum += element_wise(target);
    if (target.parameters.empty()) largest = std::max(largest, target.count);  // one flat tensor
    for (ParameterId p : target.parameters)
      if (!orthogonalizes(p)) largest = std::max(largest, std::min(program_.model().at(p).elements, target.count));
  }
  const OptimizerKind kind = program_.training().optimizer.kind;
  const bool adaptive =
      kind == OptimizerKind::adam || kind == OptimizerKind::adamw || kind == OptimizerKind::lion || kind == OptimizerKind::muon;
  switch (program_.training().optimizer.implementation) {
    case Implementation::fused:
      return {};
    case Implementation::foreach:
      return !adaptive ? Elements{} : chunk_ > Elements{} ? std::min(sum, chunk_) : sum;
    case Implementation::for_loop:
      return adaptive ? 2 * largest : largest;
  }
  return {};
}

/// Muon goes matrix by matrix, and AdamW over the rest before or after it.
Bytes OptimizerStep::temporary_bytes(std::size_t first, std::size_t last) const {
  const Training& training = program_.training();
  Bytes most = bytes(temporary_elements(first, last), moment_count(training.optimizer.kind) > 0 ? moments_dtype() : DType::fp32);
  if (!newton_schulz_) return most;
  for (std::size_t t = first; t < last; ++t)
    for (ParameterId p : targets_[t].parameters)
      if (orthogonalizes(p)) most = std::max(most, newton_schulz_bytes(program_.model().at(p), moments_dtype(), false));
  return most;
}

void OptimizerStep::create_states() {
  if (created_ || program_.training().warm) return;
  created_ = true;
  for (const Moments& m : moments_) {
    if (m.first.valid()) program_.build.allocate(m.first);
    if (m.second.valid()) program_.build.allocate(m.second);
  }
}

/// The GPU's temporaries of one call of optimizer.step; none where a kernel fuses them away or the CPU steps.
BufferId OptimizerStep::allocate_temporaries(std::size_t first, std::size_t last) {
  const Training& training = program_.training();
  const Bytes size = temporary_bytes(first, last);
  if (size == Bytes{} || training.offload.optimizer != OffloadTarget::none || training.optimizer.kind == OptimizerKind::adamw_8bit)
    return {};
  const OptimizerKind kind = training.optimizer.kind;
  const DType dtype = kind == OptimizerKind::muon ? DType::bf16 : moment_count(kind) > 0 ? moments_dtype() : DType::fp32;
  return program_.build.allocate({.label = {"optimizer temporaries", {}},
                                  .category = Category::temporaries,
                                  .dtype = dtype,
                                  .pool = ScheduleBuilder::compute_stream(),
                                  .elements = Elements{size.value() / size_of(dtype)}});
}

void OptimizerStep::emit(const std::vector<Gradients>& gradients) {
  create_states();
  const BufferId temporary = allocate_temporaries(0, targets_.size());
  for (std::size_t t = 0; t < targets_.size(); ++t) update(t, gradients[t]);
  if (temporary.valid()) program_.build.free(temporary);
}

void OptimizerStep::emit_target(std::size_t target, const Gradients& gradients) {
  create_states();
  const BufferId temporary = allocate_temporaries(target, target + 1);
  update(target, gradients);
  if (temporary.valid()) program_.build.free(temporary);
}

void OptimizerStep::update(std::size_t t, const Gradients& gradients) {
  ScheduleBuilder& build = program_.build;
  const Training& training = program_.training();
  const OptimizerKind kind = training.optimizer.kind;
  const OptimizerTarget& target = targets_[t];
  const std::size_t parts = gradients.buffers.size();
  const bool on_host = training.offload.optimizer != OffloadTarget::none;
  const Implementation implementation = on_host && cpu_kernel_ ? Implementation::fused : training.optimizer.implementation;
  bool first = true;
  for (std::size_t i = 0; i < parts; ++i) {
    const Elements count = gradients.counts[i];
    if (count == Elements{}) continue;
    Work work;
    work.memory = Bytes{static_cast<std::int64_t>(touches(kind, implementation) * static_cast<double>(bytes(count, target.dtype).value()))};
    const std::size_t tensors = std::max<std::size_t>(1, target.parameters.size() / parts);
    work.kernels = kernels(kind, implementation, tensors);
    build.call(HostCall::optimizer_tensor, static_cast<std::int32_t>(tensors));
    if (newton_schulz_ && std::exchange(first, false))
      for (ParameterId p : target.parameters)
        if (orthogonalizes(p)) add_newton_schulz(work, program_.model().at(p));
    build.update({"optimizer.step", target.label.unit}, ScheduleBuilder::compute_stream(),
                 {.optimizer = kind,
                  .count = count,
                  .work = build.work(std::move(work)),
                  .parameters = target.weights,
                  .gradients = gradients.buffers[i],
                  .first_moment = moments_[t].first,
                  .second_moment = moments_[t].second,
                  .on_host = on_host});
  }
}

void OptimizerStep::unscale(const std::vector<Gradients>& gradients, CommunicatorId communicator, DType gradient_dtype) {
  if (program_.training().precision.compute != DType::fp16) return;
  ScheduleBuilder& build = program_.build;
  Work work;
  std::size_t tensors = 0;
  for (const Gradients& g : gradients)
    for (Elements n : g.counts) {
      work.memory += bytes(2 * n, gradient_dtype);
      ++tensors;
    }
  work.kernels = std::max(1, static_cast<std::int32_t>(tensors / 30));
  OpId flag = build.compute({"GradScaler.unscale_", {}}, build.work(work), Pass::backward, {});
  if (communicator.valid() && build.schedule().group_of(communicator).size > 1) {
    const BufferId found = build.allocate({.label = {"found_inf", {}},
                                           .category = Category::temporaries,
                                           .dtype = DType::fp32,
                                           .pool = ScheduleBuilder::compute_stream(),
                                           .elements = Elements{1}});
    flag = build.communicate({"found_inf", {}}, ScheduleBuilder::compute_stream(),
                             {.kind = Collective::all_reduce,
                              .communicator = communicator,
                              .dtype = DType::fp32,
                              .control = true,
                              .payload = Elements{1},
                              .target = found});
    build.free(found);
  }
  build.host_wait({"found_inf.item", {}}, flag);
}

void OptimizerStep::clip(const std::vector<Gradients>& gradients, CommunicatorId communicator, StreamId stream, DType gradient_dtype,
                         bool host_sync, Elements norms) {
  if (!program_.training().optimizer.clip_grad_norm) return;
  ScheduleBuilder& build = program_.build;
  Elements local;
  std::int32_t tensors = 0;
  for (const Gradients& g : gradients)
    for (Elements n : g.counts) {
      local += n;
      ++tensors;
    }
  Work norm;
  norm.memory = bytes(local, gradient_dtype);
  norm.kernels = std::max(1, tensors / 30) + 2;
  OpId last = build.compute({"clip_grad_norm", {}}, build.work(norm), Pass::backward, {});
  if (communicator.valid() && build.schedule().group_of(communicator).size > 1) {
    const BufferId total = build.allocate({.label = {"total norm", {}},
                                           .category = Category::temporaries,
                                           .dtype = DType::fp32,
                                           .pool = ScheduleBuilder::compute_stream(),
                                           .elements = norms});
    build.wait_stream(stream, ScheduleBuilder::compute_stream());
    last = build.communicate({"clip_grad_norm", {}}, stream,
                             {.kind = Collective::all_reduce,
                              .communicator = communicator,
                              .dtype = DType::fp32,
                              .control = true,
                              .payload = norms,
                              .target = total});
    build.wait(ScheduleBuilder::compute_stream(), last);
    build.free(total);
  }
  if (host_sync) build.host_wait({"clip_grad_norm.item", {}}, last);
  Work scale;
  scale.memory = bytes(2 * local, gradient_dtype);
  scale.kernels = std::max(1, tensors / 30);
  build.compute({"clip_grad_norm.mul", {}}, build.work(scale), Pass::backward, {});
}

void zero_grad(Program& program, const std::vector<BufferId>& gradients) {
  for (BufferId g : gradients) {
    if (program.training().optimizer.set_to_none) {
      program.build.free(g);
    } else {
      program.build.copy({"zero_grad", {}}, ScheduleBuilder::compute_stream(),
                         {.target = g, .count = program.build.schedule().at(g).elements});
    }
  }
}

}  // namespace shardsim
