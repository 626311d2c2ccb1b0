// SPDX-License-Identifier: Apache-2.0
#include "strategies/deepspeed/zero12_step.hpp"

#include <algorithm>
#include <utility>

namespace shardsim {
namespace {

Work pass_over(Bytes memory, std::int64_t kernels) {
  Work work;
  work.memory = memory;
  work.kernels = static_cast<std::int32_t>(kernels);
  return work;
}

}  // namespace

void ZeroStep::check_and_norm() {
  if (config_.check_grad_overflow) check_overflow();
  scaled_global_norm();
}

void ZeroStep::step(const std::vector<std::vector<BufferId>>& averaged) {
  for (std::size_t i = 0; i < groups_.all().size(); ++i) step_group(i, averaged);
  groups_.all_gather();
}

/// has_overflow_partitioned_grads_serial, tensor by tensor: amax and amin, which propagate nan, and scalars of them.
void ZeroStep::check_overflow() {
  for (const FlatGroup& group : groups_.all()) {
    if (!config_.tests_extremes) {
      test_every_element(group);
      continue;
    }
    const Bytes read = 2 * bytes(group.partition, config_.averaged());
    build_.compute({"ZeRO::has_overflow", group.name}, build_.work(pass_over(read, 6 * group.own_slices)), Pass::backward, {});
  }
  all_reduce_overflow();
}

/// Before 0.19.6: x.float(), isnan, isinf, their or, and that as float are alive together, 11 bytes an element (7 without the cast).
void ZeroStep::test_every_element(const FlatGroup& group) {
  const bool cast = config_.averaged() != DType::fp32;
  const BufferId masks = build_.allocate({.label = {"has_inf_or_nan", group.name},
                                          .category = Category::temporaries,
                                          .dtype = DType::int8,
                                          .pool = current_stream,
                                          .elements = group.largest_own_slice * (cast ? 11 : 7)});
  const std::int64_t touched =
      22 + (cast ? size_of(config_.averaged()) + 4 : 0);  // bytes read and written for one element, over all passes
  build_.compute({"ZeRO::has_overflow", group.name}, build_.work(pass_over(Bytes{touched * group.partition.value()}, 7 * group.own_slices)),
                 Pass::backward, {});
  build_.free(masks);
}

void ZeroStep::all_reduce_overflow() {
  const OpId reduced = all_reduce_scalar("overflow", nullptr, DType::int8, Reduction::max);
  build_.host_wait({"overflow.item", {}}, reduced);
}

/// get_grad_norm_direct for each group: every slice is widened to fp64 first.
void ZeroStep::scaled_global_norm() {
  OpId norm;
  for (const FlatGroup& group : groups_.all()) {
    const BufferId widened = build_.allocate({.label = {"g.double", group.name},
                                              .category = Category::temporaries,
                                              .dtype = DType::fp64,
                                              .pool = current_stream,
                                              .elements = group.largest_own_slice});
    build_.compute({"ZeRO::get_grad_norm_direct", group.name},
                   build_.work(pass_over(Bytes{(size_of(config_.averaged()) + 16) * group.partition.value()}, 2 * group.own_slices + 3)),
                   Pass::backward, {});
    build_.free(widened);
    norm = all_reduce_scalar("total_norm", &group, DType::fp32, Reduction::sum);
    if (group.experts) norm = average_expert_norm(group);
  }
  build_.host_wait({"total_norm.item", {}}, norm);
}

/// _average_expert_grad_norms: once more over the ranks that hold the same experts.
OpId ZeroStep::average_expert_norm(const FlatGroup& group) {
  return all_reduce_scalar("average_expert_grad_norms", &group, DType::fp32, Reduction::sum);
}

OpId ZeroStep::all_reduce_scalar(const char* verb, const FlatGroup* group, DType dtype, Reduction reduction) {
  const UnitId name = group ? group->name : UnitId{};
  const BufferId scalar = build_.allocate(
      {.label = {verb, name}, .category = Category::temporaries, .dtype = dtype, .pool = current_stream, .elements = Elements{1}});
  const OpId op = build_.communicate({"nccl:all_reduce", build_.unit(verb)}, current_stream,
                                     {.kind = Collective::all_reduce,
                                      .communicator = group ? group->ranks.communicator : groups_.communicator(),
                                      .dtype = dtype,
                                      .reduction = reduction,
                                      .control = true,
                                      .payload = Elements{1},
                                      .target = scalar});
  build_.free(scalar);
  return op;
}

void ZeroStep::step_group(std::size_t index, const std::vector<std::vector<BufferId>>& averaged) {
  FlatGroup& group = groups_.all()[index];
  const BufferId gradient = flatten(group, averaged[index]);
  release(index, averaged);
  unscale_and_clip(group);
  group.optimizer->emit({{{gradient}, {group.partition}}});
  build_.free(gradient);
  build_.copy({"bit16_partition.copy_", group.name}, current_stream,
              {.source = group.master, .target = group.bit16, .count = group.partition});
}

/// Flattens the group's slices and casts them to the master's dtype. A single slice is not copied first: flatten of one tensor is a view.
BufferId ZeroStep::flatten(const FlatGroup& group, const std::vector<BufferId>& tensors) {
  const auto make = [&](const char* verb, DType dtype) {
    return build_.allocate({.label = {verb, group.name},
                            .category = Category::gradients,
                            .dtype = dtype,
                            .pool = current_stream,
                            .layout = group.shard,
                            .elements = group.partition});
  };
  const bool cast = config_.averaged() != config_.master;
  const bool view = cast && group.own_slices == 1 && tensors.size() == 1;
  BufferId source = view ? tensors.front() : BufferId{};
  if (!view) {
    source = make("flat_grad_partition", config_.averaged());
    // One cat over all slices; a rank of padding alone holds zeros.
    if (tensors.empty()) build_.copy({"ZeRO::flatten", group.name}, current_stream, {.target = source, .count = group.partition});
    const auto pieces = static_cast<std::int64_t>(std::max<std::size_t>(tensors.size(), 1));
    std::int32_t kernels = 1;
    for (BufferId tensor : tensors)
      build_.copy({"ZeRO::flatten", group.name}, current_stream,
                  {.source = tensor, .target = source, .count = group.partition / pieces, .kernels = std::exchange(kernels, 0)});
  }
  if (!cast) return source;
  const BufferId gradient = make("single_grad_partition", config_.master);
  build_.copy({"flat_grad_partition.to", group.name}, current_stream, {.source = source, .target = gradient, .count = group.partition});
  if (!view) build_.free(source);
  return gradient;
}

void ZeroStep::release(std::size_t index, const std::vector<std::vector<BufferId>>& averaged) {
  for (BufferId tensor : averaged[index]) {
    const bool read_later =
        std::any_of(averaged.begin() + static_cast<std::ptrdiff_t>(index) + 1, averaged.end(),
                    [&](const auto& tensors) { return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end(); });
    if (!read_later) build_.free(tensor);
  }
}

/// One multiplication by 1 / (loss scale x clip coefficient), needed or not.
void ZeroStep::unscale_and_clip(const FlatGroup& group) {
  build_.compute({"ZeRO::unscale_and_clip_grads", group.name}, build_.work(pass_over(2 * bytes(group.partition, config_.master), 1)),
                 Pass::backward, {});
}

void ZeroStep::step_offloaded(const std::vector<BufferId>& host_gradients) {
  if (config_.check_grad_overflow) all_reduce_overflow();
  for (const FlatGroup& group :
       groups_.all())  // complete_grad_norm_calculation_for_cpu_offload: norms were taken slice by slice in backward
    build_.host_wait({"total_dev_norm.item", group.name}, all_reduce_scalar("total_dev_norm", &group, DType::fp32, Reduction::sum));
  for (std::size_t i = 0; i < groups_.all().size(); ++i) {
    FlatGroup& group = groups_.all()[i];
    group.optimizer->emit({{{host_gradients[i]}, {group.partition}}});
    const BufferId bit16 = build_.buffer({.label = {"param_buffer_of_bit16_for_cpu_offload", group.name},
                                          .category = Category::communication_buffers,
                                          .persistent = true,
                                          .host = true,
                                          .dtype = config_.model,
                                          .pool = current_stream,
                                          .layout = group.shard,
                                          .elements = group.partition});
    build_.copy({"bit16_partition_buffer.copy_", group.name}, current_stream,
                {.source = group.master, .target = bit16, .count = group.partition});
    build_.copy({"bit16_partition.copy_", group.name}, current_stream,
                {.source = bit16, .target = group.bit16, .count = group.partition, .path = CopyPath::to_device});
  }
  groups_.all_gather();
}

}  // namespace shardsim
