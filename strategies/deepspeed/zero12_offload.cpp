// SPDX-License-Identifier: Apache-2.0
#include "strategies/deepspeed/zero12_offload.hpp"

#include <algorithm>

namespace shardsim {

OffloadedGradients::OffloadedGradients(Program& program, const Zero12Config& config, const FlatGroups& groups,
                                       const std::vector<ParameterId>& owned)
    : program_(program), build_(program.build), config_(config), groups_(groups), sums_(program.model().parameters->size()) {
  if (!config_.offload) return;
  Elements largest;
  for (const FlatGroup& group : groups_.all()) {
    partitions_.push_back(build_.buffer({.label = {"single_partition_of_fp32_groups.grad", group.name},
                                         .category = Category::gradients,
                                         .persistent = true,
                                         .host = true,
                                         .dtype = config_.master,
                                         .layout = group.shard,
                                         .elements = group.partition}));
    for (ParameterId p : group.parameters) largest = std::max(largest, program_.model().at(p).elements);
  }
  build_.buffer({.label = {"temp_grad_buffer_for_gpu_offload", {}},
                 .category = Category::temporaries,
                 .persistent = true,
                 .dtype = config_.model,
                 .elements = largest});
  // Stage 1 accumulates in .grad and reduces once.
  if (config_.stage != 2 || program_.micro_batches() == 1) return;
  for (ParameterId p : owned)
    sums_[static_cast<std::size_t>(p.index)] = build_.buffer({.label = {"accumulated_grads_in_cpu", unit(p)},
                                                              .category = Category::gradients,
                                                              .persistent = true,
                                                              .host = true,
                                                              .dtype = config_.model,
                                                              .layout = build_.layout({.parameters = build_.parameters(std::span(&p, 1))}),
                                                              .elements = program_.model().at(p).elements});
}

void OffloadedGradients::copy_grads_in_partition(BufferId tensor, ParameterId p, StreamId stream, std::int32_t micro_batch) {
  if (sums_[static_cast<std::size_t>(p.index)].valid()) accumulate(tensor, p, stream, micro_batch == 0);
  if (micro_batch + 1 < program_.micro_batches()) return;
  set_norm_and_check_overflow(p);
  copy_slice(tensor, p, stream);
}

/// async_accumulate_grad_in_cpu_via_gpu: the sum comes to the GPU (into temp_grad_buffer_for_gpu_offload), is added, and goes back.
void OffloadedGradients::accumulate(BufferId tensor, ParameterId p, StreamId stream, bool first) {
  const BufferId sum = sums_[static_cast<std::size_t>(p.index)];
  const Elements count = program_.model().at(p).elements;
  if (!first)
    build_.copy({"ZeRO::accumulate_gradients", unit(p)}, stream,
                {.source = sum, .target = tensor, .count = count, .path = CopyPath::to_device, .accumulate = true, .kernels = 2});
  build_.copy({"ZeRO::copy_gradients_to_cpu", unit(p)}, stream,
              {.source = tensor, .target = sum, .count = count, .path = CopyPath::to_host});
}

/// set_norm_for_param_grad_in_gpu and update_offload_overflow_tracker, whose `if` on a GPU tensor makes the host wait, parameter by
/// parameter.
void OffloadedGradients::set_norm_and_check_overflow(ParameterId p) {
  const Elements count = program_.model().at(p).elements;
  Work work;
  work.memory = bytes(4 * count, config_.model) + bytes(2 * count, DType::fp64);
  work.kernels = 9;
  const OpId checked = build_.compute({"ZeRO::set_norm_for_param_grad_in_gpu", unit(p)}, build_.work(std::move(work)), Pass::backward, {});
  build_.host_wait({"ZeRO::update_offload_overflow_tracker", unit(p)}, checked);
}

/// async_inplace_copy_grad_to_fp32_buffer_from_gpu: the slice is cast on the GPU and copied to pinned memory.
void OffloadedGradients::copy_slice(BufferId tensor, ParameterId p, StreamId stream) {
  const PartitionSlice slice = groups_.own_slice(p);
  const Elements length{slice.length};
  BufferId source = tensor;
  if (config_.master != config_.model) {
    const LayoutId layout =
        build_.layout({.parameters = build_.parameters(std::span(&p, 1)), .first = slice.first, .length = slice.length});
    source = build_.allocate({.label = {"src_tensor.to", unit(p)},
                              .category = Category::temporaries,
                              .dtype = config_.master,
                              .pool = stream,
                              .layout = layout,
                              .elements = length});
    build_.copy({"src_tensor.to", unit(p)}, stream, {.source = tensor, .target = source, .count = length});
  }
  build_.copy({"ZeRO::async_inplace_copy_grad_to_fp32_buffer_from_gpu", unit(p)}, stream,
              {.source = source, .target = partitions_[groups_.group_of(p)], .count = length, .path = CopyPath::to_host});
  if (source != tensor) build_.free(source);
}

}  // namespace shardsim
