// SPDX-License-Identifier: Apache-2.0
#include "strategies/deepspeed/parameter_coordinator.hpp"

#include <algorithm>

#include "strategies/shared/sharding.hpp"

namespace shardsim {
namespace {

constexpr std::size_t max_ongoing_fetch_events = 2;
/// qwZ: one fp32 scale for each group of int8 values. Source: deepspeed/runtime/zero/partition_parameters.py, CUDAQuantizer (target group
/// size).
constexpr std::int64_t quantization_group = 8000;

}  // namespace

ParameterCoordinator::ParameterCoordinator(Program& program, const Zero3Config& config, const std::vector<Submodule>& submodules)
    : program_(program),
      build_(program.build),
      config_(config),
      submodules_(submodules),
      allgather_(build_.stream("allgather")),
      process_group_(build_.stream("process group")),
      groups_(program, config_.shard, config_.replicas > 1),
      states_(program.model().parameters->size()) {
  if (config_.hpz > 1) hpz_group_ = {config_.hpz, 1, build_.communicator("hpz", "hpz", config_.hpz)};
  if (config_.hierarchical_gather) {
    const std::int64_t local = config_.gpus_per_node, nodes = config_.shard / local;
    intra_node_ = {local, 1, build_.communicator("intra-node", "intra-node", local)};
    inter_node_ = {nodes, local, build_.communicator("inter-node", "inter-node", nodes, local)};
  }
  declare_parameters();
}

LayoutId ParameterCoordinator::each(const std::vector<ParameterId>& parameters, const RankGroup& ranks, bool shard) {
  return build_.layout({.parameters = build_.parameters(parameters),
                        .partition = Layout::Partition::each,
                        .shard = shard,
                        .n = static_cast<std::int32_t>(ranks.ranks),
                        .stride = static_cast<std::int32_t>(ranks.stride)});
}

Elements ParameterCoordinator::partition(ParameterId p) const {
  return each_padded(program_.model().at(p), groups_.of(p).ranks) / groups_.of(p).ranks;
}

/// ds_tensor, the 16-bit partition of each parameter; small parameters stay gathered (ds_persist).
void ParameterCoordinator::declare_parameters() {
  for (ParameterId p : groups_.experts().local(all_parameters(program_.model()))) {
    ParameterState& state = at(p);
    const RankGroup& ranks = groups_.of(p);
    const UnitId name = program_.unit(p);
    state.persistent = numel(p) <= config_.persistence_threshold;
    state.shard = build_.buffer({.label = {"ds_tensor", name},
                                 .category = Category::parameters,
                                 .persistent = true,
                                 .host = program_.training().offload.parameters != OffloadTarget::none,
                                 .dtype = config_.parameters,
                                 .pool = default_stream,
                                 .layout = each({p}, ranks, true),
                                 .elements = partition(p)});
    if (!state.persistent || !program_.training().warm) continue;
    state.status = Status::available;
    state.full = build_.buffer({.label = {"persistent parameter", name},
                                .category = Category::unsharded_parameters,
                                .role = Role::parameter,
                                .persistent = true,
                                .dtype = config_.parameters,
                                .pool = allgather_,
                                .layout = each({p}, ranks, false),
                                .elements = each_padded(program_.model().at(p), ranks.ranks)});
  }
}

void ParameterCoordinator::set_trace(std::vector<std::int32_t> order) {
  trace_ = std::move(order);
  queue_.clear();
  for (std::size_t step = 0; step < trace_.size(); ++step)
    for (ParameterId p : submodules_[static_cast<std::size_t>(trace_[step])].parameters)
      queue_.push_back({p, static_cast<std::int64_t>(step)});
}

void ParameterCoordinator::reset_step(bool complete) {
  complete_ = complete;
  step_ = 0;
  available_ = 0;
  queue_front_ = 0;
  for (ParameterState& state : states_) state.fetched_for_step = -1;
}

void ParameterCoordinator::fetch_sub_module(std::int32_t index) {
  const Submodule& submodule = submodules_[static_cast<std::size_t>(index)];
  std::vector<ParameterId> missing;
  for (ParameterId p : submodule.parameters)
    if (at(p).status == Status::not_available) missing.push_back(p);
  if (!missing.empty()) all_gather(missing, submodule.name);
  for (ParameterId p : submodule.parameters)
    if (at(p).status == Status::in_flight) wait(p);
  if (!submodule.parameters.empty()) build_.wait_stream(default_stream, allgather_);
  if (complete_) prefetch(submodule);
  ++step_;
}

/// One coalesced call for each process group.
void ParameterCoordinator::all_gather(const std::vector<ParameterId>& parameters, UnitId name) {
  for (const std::vector<ParameterId>& list : groups_.by_group(parameters)) all_gather_in_group(list, name);
}

/// all_gather_coalesced: own partitions into the rank's slice of a flat buffer, gathered in place; a single parameter without detour.
void ParameterCoordinator::all_gather_in_group(const std::vector<ParameterId>& parameters, UnitId name) {
  Handle handle{.parameters = parameters, .flat = {}, .gather = {}, .in_registry = parameters.size()};
  handle.secondary = std::all_of(parameters.begin(), parameters.end(), [&](ParameterId p) { return at(p).secondary.valid(); });
  const RankGroup& ranks = ranks_of(handle);
  const std::int64_t n = ranks.ranks;
  const auto own = [&](ParameterId p) { return handle.secondary ? at(p).secondary : at(p).shard; };
  const bool offload = program_.training().offload.parameters != OffloadTarget::none && !handle.secondary;
  Elements payload;
  for (ParameterId p : parameters) {
    payload += each_padded(program_.model().at(p), n);
    available_ += numel(p);
    at(p).status = Status::in_flight;
    at(p).handle = static_cast<std::int32_t>(handles_.size());
  }
  Communicate gather{.kind = Collective::all_gather, .communicator = ranks.communicator, .dtype = config_.parameters, .payload = payload};
  if (parameters.size() == 1 && !offload) {
    at(parameters.front()).full = allocate_full(parameters.front(), ranks);
    gather.source = own(parameters.front());
    gather.target = at(parameters.front()).full;
  } else {
    handle.flat = build_.allocate({.label = {"all-gather flat tensor", name},
                                   .category = Category::communication_buffers,
                                   .dtype = config_.parameters,
                                   .pool = allgather_,
                                   .layout = each(parameters, ranks, false),
                                   .elements = payload});
    std::int32_t kernels = 1;  // one torch.cat
    for (ParameterId p : parameters)
      build_.copy({"cat partitions", name}, allgather_,
                  {.source = own(p),
                   .target = handle.flat,
                   .count = each_padded(program_.model().at(p), n) / n,
                   .path = offload ? CopyPath::to_device : CopyPath::device,
                   .kernels = std::exchange(kernels, 0)});
    gather.target = handle.flat;
  }
  if (config_.quantized_weights && !handle.secondary) {
    gather.dtype = DType::int8;  // values and, appended, their fp32 scales
    gather.payload += Elements{4 * n * ceil_div(payload.value() / n, quantization_group)};
    gather.source = gather.target = {};
  }
  if (config_.hierarchical_gather) {
    gather_between_nodes(payload, name);
    gather.communicator = intra_node_.communicator;
  }
  build_.wait_stream(process_group_, allgather_);
  handle.gather = build_.communicate({"DeepSpeed::all_gather", name}, process_group_, gather);
  handles_.push_back(std::move(handle));
}

/// _hierarchical_all_gather_params: first among the ranks of the same place in their nodes, synchronously on the current stream; what came
/// is cloned and spread to where the gather inside the node expects it.
void ParameterCoordinator::gather_between_nodes(Elements payload, UnitId name) {
  const Elements part = payload / intra_node_.ranks;
  const BufferId clone = build_.allocate({.label = {"inter-node output", name},
                                          .category = Category::communication_buffers,
                                          .dtype = config_.parameters,
                                          .pool = allgather_,
                                          .elements = part});
  build_.communicate({"MiCS::all_gather between nodes", name}, allgather_,
                     {.kind = Collective::all_gather,
                      .communicator = inter_node_.communicator,
                      .dtype = config_.parameters,
                      .payload = part,
                      .target = clone});
  build_.copy({"param_chunk.copy_", name}, allgather_, {.source = clone, .target = clone, .count = part});
  build_.free(clone);
}

/// A small parameter that is gathered while its release rules apply (not while the trace is recorded) stays from then on.
BufferId ParameterCoordinator::allocate_full(ParameterId p, const RankGroup& ranks) {
  const bool stays = at(p).persistent && complete_;
  const BufferId full = build_.buffer({.label = {stays ? "persistent parameter" : "gathered parameter", program_.unit(p)},
                                       .category = Category::unsharded_parameters,
                                       .role = Role::parameter,
                                       .persistent = stays,
                                       .dtype = config_.parameters,
                                       .pool = allgather_,
                                       .layout = each({p}, ranks, false),
                                       .elements = each_padded(program_.model().at(p), ranks.ranks)});
  build_.allocate(full);
  return full;
}

void ParameterCoordinator::wait(ParameterId parameter) {
  if (fetch_events_.size() > max_ongoing_fetch_events) {
    build_.host_wait({"DeepSpeed::fetch_events", program_.unit(parameter)}, fetch_events_.front());
    fetch_events_.pop_front();
  }
  Handle& handle = handles_[static_cast<std::size_t>(at(parameter).handle)];
  build_.wait(allgather_, handle.gather);
  if (!handle.complete) rebuild(handle);
  at(parameter).status = Status::available;
  if (--handle.in_registry == 0 && handle.flat.valid()) build_.free(handle.flat);
  fetch_events_.push_back(build_.last(allgather_));
}

/// AllGatherCoalescedHandle.wait: every parameter is put together by torch.cat of its pieces.
void ParameterCoordinator::rebuild(Handle& handle) {
  handle.complete = true;
  if (!handle.flat.valid()) return;
  const RankGroup& ranks = ranks_of(handle);
  for (ParameterId p : handle.parameters) {
    at(p).full = allocate_full(p, ranks);
    build_.copy({"rebuild parameter", program_.unit(p)}, allgather_,
                {.source = handle.flat, .target = at(p).full, .count = Elements{numel(p)}});
  }
}

void ParameterCoordinator::prefetch(const Submodule& submodule) {
  // Pop what this module needed from the queue, so that it is not prefetched later.
  std::vector<ParameterId> popped;
  std::size_t expected = 0;
  for (ParameterId p : submodule.parameters) expected += at(p).fetched_for_step < step_ ? 1 : 0;
  while (queue_front_ < queue_.size() && popped.size() < expected) {
    const QueueEntry entry = queue_[queue_front_++];
    at(entry.parameter).fetched_for_step = entry.step;
    if (std::find(popped.begin(), popped.end(), entry.parameter) == popped.end()) popped.push_back(entry.parameter);
  }
  if (config_.prefetch_bucket <= 0) return;
  const std::int64_t limit = std::min(config_.max_live - available_, config_.prefetch_bucket);
  std::int64_t prefetching = 0;
  std::vector<ParameterId> chosen;
  while (queue_front_ < queue_.size() && prefetching < limit) {
    const QueueEntry entry = queue_[queue_front_++];
    at(entry.parameter).fetched_for_step = entry.step;
    if (at(entry.parameter).status != Status::not_available || std::find(chosen.begin(), chosen.end(), entry.parameter) != chosen.end())
      continue;
    chosen.push_back(entry.parameter);
    prefetching += numel(entry.parameter);
  }
  if (!chosen.empty()) all_gather(chosen, submodule.name);
}

/// __params_to_release: not what persists, nor what the prefetcher skipped because it was still there, nor what comes back soon.
std::vector<ParameterId> ParameterCoordinator::to_release(const Submodule& submodule) const {
  if (!complete_) return submodule.parameters;
  std::vector<ParameterId> release;
  for (ParameterId p : submodule.parameters)
    if (!at(p).persistent && step_ >= at(p).fetched_for_step) release.push_back(p);
  std::int64_t traversed = 0;
  for (auto step = static_cast<std::size_t>(step_); step < trace_.size() && !release.empty() && traversed < config_.max_reuse_distance;
       ++step)
    for (ParameterId p : submodules_[static_cast<std::size_t>(trace_[step])].parameters) {
      std::erase(release, p);
      traversed += numel(p);
    }
  return release;
}

void ParameterCoordinator::release_sub_module(std::int32_t index) {
  for (ParameterId p : to_release(submodules_[static_cast<std::size_t>(index)])) {
    if (at(p).status != Status::available) continue;
    make_secondary(p);
    build_.free(at(p).full, default_stream);
    at(p).full = {};
    at(p).status = Status::not_available;
    available_ -= numel(p);
  }
}

/// hpZ: the first release after a step keeps a 16-bit shard within the small group; later gathers stay inside it.
void ParameterCoordinator::make_secondary(ParameterId p) {
  if (config_.hpz <= 1 || at(p).secondary.valid()) return;
  const UnitId name = program_.unit(p);
  const Elements count = each_padded(program_.model().at(p), config_.hpz) / config_.hpz;
  at(p).secondary = build_.allocate({.label = {"secondary partition", name},
                                     .category = Category::parameters,
                                     .dtype = config_.parameters,
                                     .pool = default_stream,
                                     .layout = each({p}, hpz_group_, true),
                                     .elements = count});
  build_.host_wait(
      {"DeepSpeed::secondary partition", name},
      build_.copy({"secondary partition", name}, default_stream, {.source = at(p).full, .target = at(p).secondary, .count = count}));
}

void ParameterCoordinator::drop_secondary() {
  for (ParameterState& state : states_)
    if (state.secondary.valid()) {
      build_.free(state.secondary);
      state.secondary = {};
    }
}

void ParameterCoordinator::gather_persistent() {
  bool any = false;
  for (ParameterId p : groups_.experts().local(all_parameters(program_.model()))) {
    ParameterState& state = at(p);
    const RankGroup& ranks = groups_.of(p);
    if (!state.persistent) continue;
    const UnitId name = program_.unit(p);
    if (!state.full.valid()) {  // the first step: from now on they stay
      complete_ = true;
      state.full = allocate_full(p, ranks);
      state.status = Status::available;
    }
    build_.wait_stream(process_group_, default_stream);
    build_.communicate({"DeepSpeed::all_gather persistent", name}, process_group_,
                       {.kind = Collective::all_gather,
                        .communicator = ranks.communicator,
                        .dtype = config_.parameters,
                        .payload = each_padded(program_.model().at(p), ranks.ranks),
                        .source = state.shard,
                        .target = state.full});
    any = true;
  }
  if (any) build_.synchronize({"DeepSpeed::persistent parameters", {}});
}

}  // namespace shardsim
