// SPDX-License-Identifier: Apache-2.0
#include "strategies/batch_shape.hpp"

#include <algorithm>
#include <stdexcept>

#include "strategies/hooks.hpp"

namespace shardsim {
namespace {

bool alike(const Tensor& a, const Tensor& b) {
  return (a.elements > Elements{}) == (b.elements > Elements{}) && a.dtype == b.dtype && a.producer == b.producer &&
         a.last_consumer == b.last_consumer && a.saved_by == b.saved_by && a.has_gradient == b.has_gradient &&
         a.gradient_dtype == b.gradient_dtype && a.core_attention == b.core_attention && a.kept_by_selective == b.kept_by_selective &&
         a.fused_away == b.fused_away && a.logits == b.logits && a.held == b.held && a.parameter_gradient == b.parameter_gradient;
}

bool alike(const Module& a, const Module& b) {
  return a.parameters == b.parameters && a.core_attention == b.core_attention && a.kept_by_selective == b.kept_by_selective &&
         a.routed_experts == b.routed_experts && (a.forward_temporary > Bytes{}) == (b.forward_temporary > Bytes{}) &&
         (a.backward_temporary > Bytes{}) == (b.backward_temporary > Bytes{});
}

bool alike(const LayerType& a, const LayerType& b);

template <class Row>
bool all_alike(const std::vector<Row>& a, const std::vector<Row>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Row& x, const Row& y) { return alike(x, y); });
}

bool alike(const LayerType& a, const LayerType& b) {
  return a.block == b.block && a.arrival == b.arrival && all_alike(a.modules, b.modules) && all_alike(a.tensors, b.tensors);
}

bool alike(const Model& a, const Model& b) {
  return a.parameters == b.parameters && a.layers == b.layers && all_alike(a.types, b.types);  // the first two are pointers
}

Training with_shape_of(Training training, const Training& other) {
  training.micro_batch_size = other.micro_batch_size;
  training.sequence_length = other.sequence_length;
  return training;
}

/// Where the training loop registered the works of the first module.
std::int32_t first_work(const Schedule& schedule, const Model& model) {
  for (const Op& op : schedule.ops) {
    const auto* compute = std::get_if<Compute>(&op.action);
    if (compute == nullptr || compute->modules.layer < 0 || compute->pass != Pass::forward) continue;
    const std::int32_t type = (*model.layers)[static_cast<std::size_t>(compute->modules.layer)].type;
    std::int32_t modules_before = compute->modules.first;
    for (std::int32_t t = 0; t < type; ++t)
      modules_before += static_cast<std::int32_t>(model.types[static_cast<std::size_t>(t)].modules.size());
    return compute->work.index - modules_before * static_cast<std::int32_t>(module_work_count);
  }
  throw std::logic_error("a schedule without a forward has no batch shape");
}

void set_works(Schedule& schedule, const Model& model) {
  auto work = schedule.works.begin() + first_work(schedule, model);
  for (const LayerType& type : model.types)
    for (const Module& module : type.modules)
      for (Work& of_module : module_works(module)) *work++ = std::move(of_module);
}

/// The scratch of a kernel is allocated just before it.
void set_workspaces(Schedule& schedule, const Model& model) {
  for (std::size_t i = 1; i < schedule.ops.size(); ++i) {
    const auto* compute = std::get_if<Compute>(&schedule.ops[i].action);
    if (compute == nullptr || compute->modules.layer < 0) continue;
    const LayerType& type = model.type_of((*model.layers)[static_cast<std::size_t>(compute->modules.layer)]);
    const Module& module = type.modules[static_cast<std::size_t>(compute->modules.first)];
    const Bytes temporary = compute->pass == Pass::backward ? module.backward_temporary : module.forward_temporary;
    if (temporary <= Bytes{}) continue;
    const BufferId scratch = std::get<Allocate>(schedule.ops[i - 1].action).buffer;
    schedule.buffers[static_cast<std::size_t>(scratch.index)].elements = Elements{temporary.value()};
  }
}

void set_tensors(Schedule& schedule, const Model& model) {
  for (Buffer& buffer : schedule.buffers) {
    const TensorRef& ref = buffer.tensor;
    if (ref.layer < 0) continue;
    const LayerType& type = model.type_of((*model.layers)[static_cast<std::size_t>(ref.layer)]);
    buffer.elements = type.tensors[static_cast<std::size_t>(ref.tensor)].elements;
  }
}

}  // namespace

bool share_ops(const Job& a, const Job& b) {
  return a.world_size == b.world_size && a.gpus_per_node == b.gpus_per_node && a.rank == b.rank && a.strategy.name == b.strategy.name &&
         a.strategy.semantics == b.strategy.semantics && a.strategy.options.values() == b.strategy.options.values() &&
         a.strategy.options.integer("expert_parallel_size", 1) == 1 && with_shape_of(a.training, b.training) == b.training &&
         alike(*a.model, *b.model);
}

void set_batch_shape(Schedule& schedule, const Job& job) {
  set_works(schedule, *job.model);
  set_workspaces(schedule, *job.model);
  set_tensors(schedule, *job.model);
}

}  // namespace shardsim
