// SPDX-License-Identifier: Apache-2.0
#include "strategies/deepspeed/zero3_sub_groups.hpp"

#include <algorithm>

#include "strategies/deepspeed/zero12_groups.hpp"
#include "strategies/shared/sharding.hpp"

namespace shardsim {

Zero3SubGroups::Zero3SubGroups(Program& program, const Zero3Config& config, const Zero3Partitions& groups)
    : program_(program),
      build_(program.build),
      config_(config),
      groups_(groups),
      place_(program.model().parameters->size()),
      optimizer_(program) {
  optimizer_.has_cpu_kernel();
  std::vector<ParameterId> dense, experts;
  // _get_trainable_parameter_groups: each of the optimizer's param groups, cut by process group.
  for (const auto& group : optimizer_param_groups(program.model(), program.training().optimizer.split_weight_decay))
    for (const std::vector<ParameterId>& part : groups_.by_group(group)) {
      add_sub_groups(part);
      std::vector<ParameterId>& all = groups_.experts().expert(part.front()) ? experts : dense;
      all.insert(all.end(), part.begin(), part.end());
    }
  partitions_ = declare_partitions(dense);
  expert_partitions_ = declare_partitions(experts);
  for (SubGroup& group : sub_groups_) declare(group);
}

LayoutId Zero3SubGroups::each(const std::vector<ParameterId>& parameters) const {
  const RankGroup& ranks = groups_.of(parameters.front());
  return build_.layout({.parameters = build_.parameters(parameters),
                        .partition = Layout::Partition::each,
                        .shard = true,
                        .n = static_cast<std::int32_t>(ranks.ranks),
                        .stride = static_cast<std::int32_t>(ranks.stride)});
}

Elements Zero3SubGroups::partition(ParameterId p) const {
  const std::int64_t n = groups_.of(p).ranks;
  return each_padded(program_.model().at(p), n) / n;
}

/// _create_fp16_sub_groups: one is closed when it has reached sub_group_size; it may exceed it by a parameter.
void Zero3SubGroups::add_sub_groups(const std::vector<ParameterId>& parameters) {
  bool open = false;
  for (ParameterId p : parameters) {
    if (!open) sub_groups_.push_back({.name = build_.unit("sub-group " + std::to_string(sub_groups_.size()))});
    SubGroup& group = sub_groups_.back();
    group.parameters.push_back(p);
    group.count += partition(p);
    group.largest = std::max(group.largest, partition(p));
    open = group.count < Elements{config_.sub_group};
  }
}

BufferId Zero3SubGroups::declare_partitions(const std::vector<ParameterId>& parameters) {
  if (parameters.empty()) return {};
  Elements total;
  for (ParameterId p : parameters) {
    place_[static_cast<std::size_t>(p.index)] = total;
    total += partition(p);
  }
  return build_.buffer({.label = {"grad_partitions_flat_buffer", {}},
                        .category = Category::gradients,
                        .persistent = true,
                        .host = offload(),
                        .dtype = config_.accumulation,
                        .pool = default_stream,
                        .layout = each(parameters),
                        .elements = total});
}

void Zero3SubGroups::declare(SubGroup& group) {
  const LayoutId layout = each(group.parameters);
  group.master = build_.buffer({.label = {"fp32 partition", group.name},
                                .category = Category::optimizer_states,
                                .persistent = true,
                                .host = offload(),
                                .dtype = config_.master,
                                .pool = default_stream,
                                .layout = layout,
                                .elements = group.count});
  optimizer_.add({.label = {"optimizer", group.name},
                  .parameters = group.parameters,
                  .weights = group.master,
                  .layout = layout,
                  .count = group.count,
                  .dtype = config_.master});
}

void Zero3SubGroups::step(const std::function<BufferId(ParameterId)>& shard) {
  build_.call(HostCall::zero_step);
  if (config_.parameters == DType::fp16) check_overflow();
  for (const SubGroup& group : sub_groups_) reduce_norm(group);
  for (std::size_t i = 0; i < sub_groups_.size(); ++i) step_sub_group(i, shard);
}

/// fp16 only: one flag for all ranks, read by the host.
void Zero3SubGroups::check_overflow() {
  const BufferId flag = build_.allocate({.label = {"overflow", {}},
                                         .category = Category::temporaries,
                                         .dtype = DType::int8,
                                         .pool = default_stream,
                                         .elements = Elements{1}});
  const OpId reduced = build_.communicate({"DeepSpeed::all_reduce overflow", {}}, default_stream,
                                          {.kind = Collective::all_reduce,
                                           .communicator = groups_.all().communicator,
                                           .dtype = DType::int8,
                                           .reduction = Reduction::max,
                                           .control = true,
                                           .payload = Elements{1},
                                           .target = flag});
  build_.free(flag);
  build_.host_wait({"DeepSpeed::overflow.item", {}}, reduced);
}

/// get_grad_norm_direct: every partition is widened to fp64 first. With the optimizer on the CPU the norms were taken in backward
/// (complete_grad_norm_calculation_for_cpu_offload), and their sum travels in fp32.
void Zero3SubGroups::reduce_norm(const SubGroup& group) {
  const DType dtype = offload() ? DType::fp32 : DType::fp64;
  const auto temporary = [&](const char* verb, Elements elements) {
    return build_.allocate(
        {.label = {verb, group.name}, .category = Category::temporaries, .dtype = dtype, .pool = default_stream, .elements = elements});
  };
  const BufferId norm = temporary("norm", Elements{1});
  const BufferId widened = offload() ? BufferId{} : temporary("g.double", group.largest);
  Work work;
  work.memory = bytes(group.count, config_.accumulation);
  work.kernels = static_cast<std::int32_t>(group.parameters.size());
  build_.compute({"gradient norm", group.name}, build_.work(work), Pass::backward, {});
  if (widened.valid()) build_.free(widened);
  const OpId reduced = build_.communicate({"DeepSpeed::all_reduce norm", group.name}, default_stream,
                                          {.kind = Collective::all_reduce,
                                           .communicator = groups_.of(group.parameters.front()).communicator,
                                           .dtype = dtype,
                                           .control = true,
                                           .payload = Elements{1},
                                           .target = norm});
  build_.free(norm);
  build_.host_wait({"DeepSpeed::norm.item", group.name}, reduced);
}

/// flatten(averaged_gradients): a copy in the accumulation dtype; of a single tensor a view.
BufferId Zero3SubGroups::flatten(const SubGroup& group) {
  const ParameterId first = group.parameters.front();
  Buffer flat{.label = {"flat gradient partition", group.name},
              .category = Category::temporaries,
              .dtype = config_.accumulation,
              .pool = default_stream,
              .layout = each(group.parameters),
              .elements = group.count};
  if (group.parameters.size() == 1) {
    flat.category = Category::gradients;
    flat.view_of = partitions(first);
    flat.view_offset = place(first);
    return build_.buffer(std::move(flat));
  }
  const BufferId copy = build_.allocate(std::move(flat));
  build_.copy({"flatten gradient partitions", group.name}, default_stream,
              {.source = partitions(first), .target = copy, .count = group.count});
  return copy;
}

/// _prepare_fp32_grad_for_sub_group: the flat copy and its cast are alive together. On the CPU the gradient is there already.
BufferId Zero3SubGroups::prepare_gradient(const SubGroup& group) {
  const auto cast_from = [&](BufferId source) {
    const BufferId gradient = build_.allocate({.label = {"fp32 gradient", group.name},
                                               .category = Category::temporaries,
                                               .host = offload(),
                                               .dtype = config_.master,
                                               .pool = default_stream,
                                               .layout = each(group.parameters),
                                               .elements = group.count});
    build_.copy({"gradient to fp32", group.name}, default_stream, {.source = source, .target = gradient, .count = group.count});
    return gradient;
  };
  if (offload()) return cast_from(partitions(group.parameters.front()));
  const BufferId flat = flatten(group);
  if (config_.accumulation == config_.master) return flat;
  const BufferId gradient = cast_from(flat);
  if (!build_.schedule().at(flat).view_of.valid()) build_.free(flat);
  return gradient;
}

void Zero3SubGroups::step_sub_group(std::size_t index, const std::function<BufferId(ParameterId)>& shard) {
  const SubGroup& group = sub_groups_[index];
  const BufferId gradient = prepare_gradient(group);
  optimizer_.emit_target(index, {{gradient}, {group.count}});
  if (!build_.schedule().at(gradient).view_of.valid()) build_.free(gradient);
  for (ParameterId p : group.parameters)
    build_.copy({"fp32 to 16-bit partition", program_.unit(p)}, default_stream,
                {.source = group.master,
                 .target = shard(p),
                 .count = build_.schedule().at(shard(p)).elements,
                 .path = offload() ? CopyPath::to_device : CopyPath::device});
}

}  // namespace shardsim
