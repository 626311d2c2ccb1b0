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
      sub_groups_(program, config, groups_),
      gradients_(program.model().parameters->size()) {
  if (config_.replicas > 1) replicate_group_ = build_.communicator("replicate", "replicate", config_.replicas, config_.shard);
  if (config_.quantized_gradients) {
    intra_node_ = build_.communicator("intra-node", "intra-node", config_.gpus_per_node);
    inter_node_ = build_.communicator("inter-node", "inter-node", config_.shard / config_.gpus_per_node, config_.gpus_per_node);
  }
  if (config_.contiguous_gradients)
    bucket_ = build_.buffer({.label = {"ipg bucket", {}},
                             .category = Category::communication_buffers,
                             .persistent = true,
                             .dtype = config_.communication,
                             .pool = default_stream,
                             .elements = Elements{config_.reduce_bucket}});
}

LayoutId Zero3Gradients::each(const std::vector<ParameterId>& parameters, bool shard) {
  const RankGroup& ranks = groups_.of(parameters.front());
  return build_.layout({.parameters = build_.parameters(parameters),
                        .partition = Layout::Partition::each,
                        .shard = shard,
                        .n = static_cast<std::int32_t>(ranks.ranks),
                        .stride = static_cast<std::int32_t>(ranks.stride)});
}

std::vector<ParameterId> Zero3Gradients::pending_parameters() const {
  std::vector<ParameterId> ids;
  for (const Pending& p : pending_) ids.push_back(p.parameter);
  return ids;
}

void Zero3Gradients::produce(ParameterId parameter) {
  gradient(parameter) = build_.allocate({.label = {".grad", program_.unit(parameter)},
                                         .category = Category::unsharded_gradients,
                                         .role = Role::gradient,
                                         .dtype = config_.parameters,
                                         .pool = default_stream,
                                         .layout = build_.layout({.parameters = build_.parameters(std::span(&parameter, 1))}),
                                         .elements = program_.model().at(parameter).elements});
}

/// A bucket holds gradients of one process group.
void Zero3Gradients::ready(ParameterId parameter) {
  build_.call(HostCall::zero3_gradient);
  const Elements numel = program_.model().at(parameter).elements;
  const auto other_group = [&] { return &ranks() != &groups_.of(parameter); };
  if (!pending_.empty() && (other_group() || filled_ + numel > Elements{config_.reduce_bucket})) reduce_and_partition();
  add_to_bucket(parameter);
}

/// __add_grad_to_ipg_bucket: the gradient moves into the bucket, its own storage is freed; one larger than the bucket stays where it is,
/// and all of them without contiguous_gradients.
void Zero3Gradients::add_to_bucket(ParameterId parameter) {
  const Elements numel = program_.model().at(parameter).elements;
  const bool moves = config_.contiguous_gradients && filled_ + numel <= Elements{config_.reduce_bucket};
  build_.wait_stream(reduce_stream_, default_stream);
  pending_.push_back({parameter, filled_, !moves});
  filled_ += numel;
  if (!moves) return;
  BufferId& own = gradient(parameter);
  const UnitId name = program_.unit(parameter);
  const BufferId place = build_.buffer({.label = {"ipg view", name},
                                        .category = Category::communication_buffers,
                                        .dtype = config_.communication,
                                        .pool = default_stream,
                                        .layout = build_.layout({.parameters = build_.parameters(std::span(&parameter, 1))}),
                                        .elements = numel,
                                        .view_of = bucket_,
                                        .view_offset = pending_.back().offset});
  build_.copy({"copy to ipg bucket", name}, reduce_stream_, {.source = own, .target = place, .count = numel});
  build_.free(own, reduce_stream_);
  own = place;
}

/// __reduce_and_partition_ipg_grads. Only a contiguous bucket is ever all-reduced.
void Zero3Gradients::reduce_and_partition() {
  if (pending_.empty()) return;
  if (reduce_events_.size() > max_outstanding_reduces) {
    build_.host_wait({"DeepSpeed::reduce events", {}}, reduce_events_.front());
    reduce_events_.pop_front();
  }
  const bool contiguous = config_.contiguous_gradients && filled_ <= Elements{config_.reduce_bucket};
  contiguous && !config_.reduce_scatter ? all_reduce_bucket() : reduce_scatter_bucket();
  if (replicate_group_.valid() && micro_batch_ + 1 == program_.micro_batches()) all_reduce_shards();
  reduce_events_.push_back(build_.last(reduce_stream_));
  for (const Pending& p : pending_) {
    if (p.own_storage) build_.free(gradient(p.parameter), reduce_stream_);
    gradient(p.parameter) = {};
  }
  pending_.clear();
  filled_ = {};
}

/// __avg_scatter_contiguous_grads: the bucket as it stands is divided and all-reduced; this rank's parts of it are kept.
void Zero3Gradients::all_reduce_bucket() {
  const BufferId filled = build_.buffer({.label = {"filled ipg bucket", {}},
                                         .category = Category::communication_buffers,
                                         .dtype = config_.communication,
                                         .pool = default_stream,
                                         .layout = build_.layout({.parameters = build_.parameters(pending_parameters())}),
                                         .elements = filled_,
                                         .view_of = bucket_});
  build_.copy({"buffer_to_reduce.div_", {}}, reduce_stream_,
              {.source = filled, .target = filled, .count = filled_, .scale = 1.0 / static_cast<double>(program_.job.world_size)});
  build_.communicate({"DeepSpeed::all_reduce", {}}, reduce_stream_,
                     {.kind = Collective::all_reduce,
                      .communicator = ranks().communicator,
                      .dtype = config_.communication,
                      .payload = filled_,
                      .target = filled});
  for (const Pending& p : pending_)
    partition_gradients(p.parameter, gradient(p.parameter), each_padded(program_.model().at(p.parameter), ranks().ranks) / ranks().ranks);
}

/// __avg_scatter_grads: parameters in registration order, pre-divided, as one rank-major tensor.
void Zero3Gradients::reduce_scatter_bucket() {
  std::sort(pending_.begin(), pending_.end(), [](const Pending& a, const Pending& b) { return a.parameter < b.parameter; });
  const std::vector<ParameterId> ids = pending_parameters();
  Elements payload;
  for (ParameterId p : ids) payload += each_padded(program_.model().at(p), ranks().ranks);
  const BufferId flat = build_.allocate({.label = {"reduce-scatter flat tensor", {}},
                                         .category = Category::communication_buffers,
                                         .dtype = config_.communication,
                                         .pool = reduce_stream_,
                                         .layout = each(ids, false),
                                         .elements = payload});
  std::int32_t kernels = 1;
  for (ParameterId p : ids)
    build_.copy({"cat gradients", {}}, reduce_stream_,
                {.source = gradient(p),
                 .target = flat,
                 .count = program_.model().at(p).elements,
                 .kernels = std::exchange(kernels, 0),
                 .scale = 1.0 / static_cast<double>(program_.job.world_size)});
  send(flat, payload);
  const Elements owned = payload / ranks().ranks;
  const BufferId own = build_.buffer({.label = {"own partition", {}},
                                      .category = Category::communication_buffers,
                                      .dtype = config_.communication,
                                      .pool = reduce_stream_,
                                      .layout = each(ids, true),
                                      .elements = owned,
                                      .view_of = flat,
                                      .view_offset = ranks().part(program_.job.rank) * owned});
  partition_gradients(ids.front(), own, owned);
  build_.free(flat);
}

void Zero3Gradients::send(BufferId flat, Elements payload) {
  if (config_.quantized_gradients) {
    Elements plain;
    for (const Pending& p : pending_) {
      if (quantized(p.parameter))
        reduce_quantized(p.parameter);
      else
        plain += each_padded(program_.model().at(p.parameter), config_.shard);
    }
    payload = plain;
    if (payload == Elements{}) return;
  }
  build_.communicate({"DeepSpeed::reduce_scatter_coalesced", {}}, reduce_stream_,
                     {.kind = Collective::reduce_scatter,
                      .communicator = ranks().communicator,
                      .dtype = config_.communication,
                      .payload = payload,
                      .source = flat});
}

/// partition_grads: into the partitions of the process group of `parameter`, or added to what is there.
void Zero3Gradients::partition_gradients(ParameterId parameter, BufferId from, Elements count) {
  build_.copy({"partition_grads", {}}, reduce_stream_,
              {.source = from,
               .target = sub_groups_.partitions(parameter),
               .count = count,
               .path = program_.training().offload.optimizer != OffloadTarget::none ? CopyPath::to_host : CopyPath::device,
               .accumulate = micro_batch_ > 0});
}

/// allreduce_mics_shard_grads: at the accumulation boundary, bucket by bucket, what has just been added to the partitions is summed over
/// the replicas in place (all_reduce_coalesced); partitions that are neighbours in one call.
void Zero3Gradients::all_reduce_shards() {
  const auto length = [&](const Pending& p) { return each_padded(program_.model().at(p.parameter), config_.shard) / config_.shard; };
  const auto start = [&](const Pending& p) { return sub_groups_.place(p.parameter); };
  for (std::size_t i = 0; i < pending_.size();) {
    const Pending& first = pending_[i];
    Elements end = start(first);
    for (; i < pending_.size() && start(pending_[i]) == end; ++i) end += length(pending_[i]);
    build_.communicate({"MiCS::all_reduce", {}}, reduce_stream_,
                       {.kind = Collective::all_reduce,
                        .communicator = replicate_group_,
                        .dtype = config_.accumulation,
                        .payload = end - start(first),
                        .target = sub_groups_.partitions(first.parameter),
                        .offset = start(first)});
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

void Zero3Gradients::epilogue() {
  reduce_and_partition();
  if (const OpId last = build_.last(reduce_stream_); last.valid()) build_.host_wait({"DeepSpeed::synchronize reduce stream", {}}, last);
  reduce_events_.clear();
}

}  // namespace shardsim
