// SPDX-License-Identifier: Apache-2.0
#include "strategies/deepspeed/zero3_gradients.hpp"

#include <algorithm>

#include "strategies/shared/sharding.hpp"

namespace shardsim {
namespace {

constexpr std::size_t max_outstanding_reduces = 2;

}  // namespace

Zero3Gradients::Zero3Gradients(Program& program, const Zero3Config& config)
    : program_(program),
      build_(program.build),
      config_(config),
      reduce_stream_(config.overlap_comm ? build_.stream("reduce_and_partition") : default_stream),
      groups_(program, config.shard, config.replicas > 1),
      optimizer_(program) {
  if (config_.replicas > 1) replicate_group_ = build_.communicator("replicate", "replicate", config_.replicas, config_.shard);
  if (config_.quantized_gradients) {
    intra_node_ = build_.communicator("intra-node", "intra-node", config_.gpus_per_node);
    inter_node_ = build_.communicator("inter-node", "inter-node", config_.shard / config_.gpus_per_node, config_.gpus_per_node);
  }
  gradients_.resize(program.model().parameters->size());
  place_.resize(gradients_.size());
  declare();
}

LayoutId Zero3Gradients::each(const std::vector<ParameterId>& parameters, bool shard) {
  const RankGroup& ranks = groups_.of(parameters.front());
  return build_.layout({.parameters = build_.parameters(parameters),
                        .partition = Layout::Partition::each,
                        .shard = shard,
                        .n = static_cast<std::int32_t>(ranks.ranks),
                        .stride = static_cast<std::int32_t>(ranks.stride)});
}

void Zero3Gradients::declare() {
  bucket_ = build_.buffer({.label = {"ipg bucket", {}},
                           .category = Category::communication_buffers,
                           .persistent = true,
                           .dtype = config_.communication,
                           .pool = default_stream,
                           .elements = Elements{config_.reduce_bucket}});
  for (const std::vector<ParameterId>& trainable : groups_.by_group(parameters_where(program_.model(), true))) declare_group(trainable);
}

/// Gradient partitions, and sub-groups of at most sub_group_size elements with their fp32 partitions and states, of one process group.
void Zero3Gradients::declare_group(const std::vector<ParameterId>& trainable) {
  const bool offload = program_.training().offload.optimizer != OffloadTarget::none;
  const std::int64_t n = groups_.of(trainable.front()).ranks;
  const auto partition = [&](ParameterId p) { return each_padded(program_.model().at(p), n) / n; };
  const std::size_t first = sub_groups_.size();
  Elements total, in_group;
  for (ParameterId p : trainable) {
    if (sub_groups_.size() == first || in_group + partition(p) > Elements{config_.sub_group}) {
      sub_groups_.emplace_back();
      in_group = {};
    }
    sub_groups_.back().push_back(p);
    place_[static_cast<std::size_t>(p.index)] = total;
    in_group += partition(p);
    total += partition(p);
  }
  (groups_.experts().expert(trainable.front()) ? expert_partitions_ : partitions_) =
      build_.buffer({.label = {"grad_partitions_flat_buffer", {}},
                     .category = Category::gradients,
                     .persistent = true,
                     .host = offload,
                     .dtype = config_.accumulation,
                     .pool = default_stream,
                     .layout = each(trainable, true),
                     .elements = total});
  for (std::size_t i = first; i < sub_groups_.size(); ++i) {
    const std::vector<ParameterId>& group = sub_groups_[i];
    Elements count;
    for (ParameterId p : group) count += partition(p);
    const UnitId name = build_.unit("sub-group " + std::to_string(masters_.size()));
    masters_.push_back(build_.buffer({.label = {"fp32 partition", name},
                                      .category = Category::optimizer_states,
                                      .persistent = true,
                                      .host = offload,
                                      .dtype = config_.master,
                                      .pool = default_stream,
                                      .layout = each(group, true),
                                      .elements = count}));
    optimizer_.add({.label = {"optimizer", name},
                    .parameters = group,
                    .weights = masters_.back(),
                    .layout = each(group, true),
                    .count = count,
                    .dtype = config_.master});
  }
}

void Zero3Gradients::begin_micro_batch(std::int32_t index) { micro_batch_ = index; }

void Zero3Gradients::produce(ParameterId parameter) {
  gradients_[static_cast<std::size_t>(parameter.index)] =
      build_.allocate({.label = {".grad", program_.unit(parameter)},
                       .category = Category::unsharded_gradients,
                       .role = Role::gradient,
                       .dtype = config_.parameters,
                       .pool = default_stream,
                       .layout = build_.layout({.parameters = build_.parameters(std::span(&parameter, 1))}),
                       .elements = program_.model().at(parameter).elements});
}

void Zero3Gradients::ready(ParameterId parameter) {
  const Elements numel = program_.model().at(parameter).elements;
  if (!pending_.empty() && filled_ + numel > Elements{config_.reduce_bucket}) reduce_and_partition();
  add_to_bucket(parameter);
}

/// __add_grad_to_ipg_bucket: the gradient moves into the bucket, its own storage is freed; one larger than the bucket stays where it is.
void Zero3Gradients::add_to_bucket(ParameterId parameter) {
  const Elements numel = program_.model().at(parameter).elements;
  const bool fits = filled_ + numel <= Elements{config_.reduce_bucket};
  build_.wait_stream(reduce_stream_, default_stream);
  pending_.push_back({parameter, filled_, !fits});
  filled_ += numel;
  if (!fits) return;
  BufferId& gradient = gradients_[static_cast<std::size_t>(parameter.index)];
  const UnitId name = program_.unit(parameter);
  const BufferId place = build_.buffer({.label = {"ipg view", name},
                                        .category = Category::communication_buffers,
                                        .dtype = config_.communication,
                                        .pool = default_stream,
                                        .layout = build_.layout({.parameters = build_.parameters(std::span(&parameter, 1))}),
                                        .elements = numel,
                                        .view_of = bucket_,
                                        .view_offset = pending_.back().offset});
  build_.copy({"copy to ipg bucket", name}, reduce_stream_, {.source = gradient, .target = place, .count = numel});
  build_.free(gradient, reduce_stream_);
  gradient = place;
}

/// __reduce_and_partition_ipg_grads: pre-divide, one rank-major tensor, reduce-scatter (or all-reduce), then partition_grads.
void Zero3Gradients::reduce_and_partition() {
  if (pending_.empty()) return;
  if (reduce_events_.size() > max_outstanding_reduces) {
    build_.host_wait({"DeepSpeed::reduce events", {}}, reduce_events_.front());
    reduce_events_.pop_front();
  }
  std::sort(pending_.begin(), pending_.end(), [](const Pending& a, const Pending& b) { return a.parameter < b.parameter; });
  const auto experts =
      std::stable_partition(pending_.begin(), pending_.end(), [&](const Pending& p) { return !groups_.experts().expert(p.parameter); });
  if (experts != pending_.begin()) reduce_and_partition_group({pending_.begin(), experts});
  if (experts != pending_.end()) reduce_and_partition_group({experts, pending_.end()});
  reduce_events_.push_back(build_.last(reduce_stream_));
  for (const Pending& p : pending_) {
    BufferId& gradient = gradients_[static_cast<std::size_t>(p.parameter.index)];
    if (p.own_storage) build_.free(gradient, reduce_stream_);
    gradient = {};
  }
  pending_.clear();
  filled_ = {};
}

/// The bucket's gradients of one process group: one rank-major tensor, reduced, and this rank's parts of it kept.
void Zero3Gradients::reduce_and_partition_group(const std::vector<Pending>& pending) {
  const RankGroup& ranks = groups_.of(pending.front().parameter);
  std::vector<ParameterId> ids;
  Elements payload;
  for (const Pending& p : pending) {
    ids.push_back(p.parameter);
    payload += each_padded(program_.model().at(p.parameter), ranks.ranks);
  }
  const BufferId flat = build_.allocate({.label = {"reduce-scatter flat tensor", {}},
                                         .category = Category::communication_buffers,
                                         .dtype = config_.communication,
                                         .pool = reduce_stream_,
                                         .layout = each(ids, false),
                                         .elements = payload});
  std::int32_t kernels = 1;
  for (const Pending& p : pending)
    build_.copy({"cat gradients", {}}, reduce_stream_,
                {.source = gradients_[static_cast<std::size_t>(p.parameter.index)],
                 .target = flat,
                 .count = program_.model().at(p.parameter).elements,
                 .kernels = std::exchange(kernels, 0),
                 .scale = 1.0 / static_cast<double>(program_.job.world_size)});
  reduce(pending, flat, payload);
  const Elements owned = payload / ranks.ranks;
  const BufferId own = build_.buffer({.label = {"own partition", {}},
                                      .category = Category::communication_buffers,
                                      .dtype = config_.communication,
                                      .pool = reduce_stream_,
                                      .layout = each(ids, true),
                                      .elements = owned,
                                      .view_of = flat,
                                      .view_offset = ranks.part(program_.job.rank) * owned});
  build_.copy({"partition_grads", {}}, reduce_stream_,
              {.source = own,
               .target = groups_.experts().expert(ids.front()) ? expert_partitions_ : partitions_,
               .count = owned,
               .path = program_.training().offload.optimizer != OffloadTarget::none ? CopyPath::to_host : CopyPath::device,
               .accumulate = micro_batch_ > 0});
  build_.free(flat);
  if (replicate_group_.valid() && micro_batch_ + 1 == program_.micro_batches()) all_reduce_shards(ids);
}

/// allreduce_mics_shard_grads: at the accumulation boundary, bucket by bucket, what has just been added to the partitions is summed over
/// the replicas, in place; partitions that stand side by side in one call.
void Zero3Gradients::all_reduce_shards(const std::vector<ParameterId>& parameters) {
  const auto length = [&](ParameterId p) { return each_padded(program_.model().at(p), config_.shard) / config_.shard; };
  const auto start = [&](ParameterId p) { return place_[static_cast<std::size_t>(p.index)]; };
  for (std::size_t i = 0; i < parameters.size();) {
    const Elements first = start(parameters[i]);
    Elements end = first;
    for (; i < parameters.size() && start(parameters[i]) == end; ++i) end += length(parameters[i]);
    build_.communicate({"MiCS::all_reduce", {}}, reduce_stream_,
                       {.kind = Collective::all_reduce,
                        .communicator = replicate_group_,
                        .dtype = config_.accumulation,
                        .payload = end - first,
                        .target = partitions_,
                        .offset = first});
  }
}

/// all_to_all_quant_reduce takes matrices whose elements divide by twice the world; everything else is reduce-scattered.
bool Zero3Gradients::quantized(ParameterId parameter) const {
  const Parameter& p = program_.model().at(parameter);
  return p.shape.size() > 1 && p.elements.value() % (2 * config_.shard) == 0;
}

/// Two hops of int4 values (two a byte) with fp32 scales: within the node on the whole tensor, then between nodes on its L-th part.
/// Source: deepspeed/runtime/comm/coalesced_collectives.py.
void Zero3Gradients::reduce_quantized(ParameterId parameter) {
  const Parameter& p = program_.model().at(parameter);
  const UnitId name = build_.unit(p.name);
  const std::int64_t local = config_.gpus_per_node, packed = p.elements.value() / 2;
  const std::int64_t scales = std::max({p.shape[0], p.shape[1], config_.shard});
  const auto hop = [&](const char* verb, CommunicatorId group, DType dtype, std::int64_t count) {
    build_.communicate({verb, name}, reduce_stream_,
                       {.kind = Collective::all_to_all, .communicator = group, .dtype = dtype, .payload = Elements{count}});
  };
  hop("qgZ::all_to_all intra", intra_node_, DType::int8, packed);
  hop("qgZ::all_to_all intra scales", intra_node_, DType::fp32, scales);
  hop("qgZ::all_to_all inter", inter_node_, DType::int8, packed / local);
  hop("qgZ::all_to_all inter scales", inter_node_, DType::fp32, ceil_div(scales, local));
}

void Zero3Gradients::reduce(const std::vector<Pending>& pending, BufferId flat, Elements payload) {
  if (config_.quantized_gradients) {
    Elements plain;
    for (const Pending& p : pending) {
      if (quantized(p.parameter))
        reduce_quantized(p.parameter);
      else
        plain += each_padded(program_.model().at(p.parameter), config_.shard);
    }
    payload = plain;
    if (payload == Elements{}) return;
  }
  Communicate action{.kind = config_.reduce_scatter ? Collective::reduce_scatter : Collective::all_reduce,
                     .communicator = groups_.of(pending.front().parameter).communicator,
                     .dtype = config_.communication,
                     .payload = payload};
  (config_.reduce_scatter ? action.source : action.target) = flat;
  build_.communicate({config_.reduce_scatter ? "DeepSpeed::reduce_scatter_coalesced" : "DeepSpeed::all_reduce", {}}, reduce_stream_,
                     action);
}

void Zero3Gradients::epilogue() {
  reduce_and_partition();
  if (const OpId last = build_.last(reduce_stream_); last.valid()) build_.host_wait({"DeepSpeed::synchronize reduce stream", {}}, last);
  reduce_events_.clear();
}

/// fp16 only: one flag for all ranks, read by the host.
void Zero3Gradients::all_reduce_overflow() {
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

/// One scalar (fp64) norm for each sub-group, then unscale, optimizer and copy to the 16-bit partitions sub-group by sub-group.
void Zero3Gradients::step(const std::function<BufferId(ParameterId)>& shard) {
  if (config_.parameters == DType::fp16) all_reduce_overflow();
  for (std::size_t i = 0; i < sub_groups_.size(); ++i) {
    const UnitId name = build_.unit("sub-group " + std::to_string(i));
    const BufferId norm = build_.allocate({.label = {"norm", name},
                                           .category = Category::temporaries,
                                           .dtype = DType::fp64,
                                           .pool = default_stream,
                                           .elements = Elements{1}});
    Work work;
    work.memory = bytes(optimizer_.targets()[i].count, config_.accumulation);
    work.kernels = static_cast<std::int32_t>(sub_groups_[i].size());
    build_.compute({"gradient norm", name}, build_.work(work), Pass::backward, {});
    const OpId reduced = build_.communicate({"DeepSpeed::all_reduce norm", name}, default_stream,
                                            {.kind = Collective::all_reduce,
                                             .communicator = groups_.of(sub_groups_[i].front()).communicator,
                                             .dtype = DType::fp64,
                                             .control = true,
                                             .payload = Elements{1},
                                             .target = norm});
    build_.free(norm);
    build_.host_wait({"DeepSpeed::norm.item", name}, reduced);
  }
  for (std::size_t i = 0; i < sub_groups_.size(); ++i) step_sub_group(i, shard);
}

void Zero3Gradients::step_sub_group(std::size_t index, const std::function<BufferId(ParameterId)>& shard) {
  const OptimizerTarget& target = optimizer_.targets()[index];
  const bool offload = program_.training().offload.optimizer != OffloadTarget::none;
  BufferId gradient = build_.allocate({.label = {"fp32 gradient", target.label.unit},
                                       .category = Category::temporaries,
                                       .host = offload,
                                       .dtype = DType::fp32,
                                       .pool = default_stream,
                                       .layout = target.layout,
                                       .elements = target.count});
  build_.copy({"gradient to fp32", target.label.unit}, default_stream,
              {.source = groups_.experts().expert(target.parameters.front()) ? expert_partitions_ : partitions_,
               .target = gradient,
               .count = target.count});
  optimizer_.emit_target(index, {{gradient}, {target.count}});
  build_.free(gradient);
  for (ParameterId p : target.parameters)
    build_.copy({"fp32 to 16-bit partition", program_.unit(p)}, default_stream,
                {.source = masters_[index],
                 .target = shard(p),
                 .count = build_.schedule().at(shard(p)).elements,
                 .path = offload ? CopyPath::to_device : CopyPath::device});
}

}  // namespace shardsim
