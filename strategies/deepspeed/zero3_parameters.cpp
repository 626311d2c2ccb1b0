// SPDX-License-Identifier: Apache-2.0
#include "strategies/deepspeed/zero3_parameters.hpp"

#include <algorithm>
#include <utility>

#include "strategies/shared/sharding.hpp"

namespace shardsim {
namespace {

constexpr std::size_t max_ongoing_fetch_events = 2;

/// CUDAQuantizer.quantize: groups of int8 values with one fp32 scale each, at most 8,000 where the length divides into multiples of 8,
/// then halved while they are larger.
std::int64_t quantization_groups(std::int64_t elements) {
  constexpr std::int64_t target = 8000, vector = 8;
  std::int64_t groups = ceil_div(elements, target);
  while (groups < elements && elements % (vector * groups) != 0) ++groups;
  while (elements % (2 * vector * groups) == 0 && elements > target * groups) groups *= 2;
  return groups;
}

}  // namespace

Zero3Parameters::Zero3Parameters(Program& program, const Zero3Config& config)
    : program_(program),
      build_(program.build),
      config_(config),
      allgather_(build_.stream("allgather")),
      process_group_(build_.stream("process group")),
      groups_(program, config_.shard, config_.replicas > 1),
      states_(program.model().parameters->size()),
      keeps_persistent_(program.training().warm) {
  if (config_.hpz > 1) hpz_group_ = {config_.hpz, 1, build_.communicator("hpz", "hpz", config_.hpz)};
  if (config_.hierarchical_gather) {
    const std::int64_t local = config_.gpus_per_node, nodes = config_.shard / local;
    intra_node_ = {local, 1, build_.communicator("intra-node", "intra-node", local)};
    inter_node_ = {nodes, local, build_.communicator("inter-node", "inter-node", nodes, local)};
  }
  declare();
}

Elements Zero3Parameters::gathered(ParameterId p) const { return each_padded(program_.model().at(p), groups_.of(p).ranks); }

LayoutId Zero3Parameters::each(const std::vector<ParameterId>& parameters, const RankGroup& ranks, bool shard) {
  const std::int64_t parts = groups_.of(parameters.front()).ranks / ranks.ranks;  // of all ranks', in one of these
  return build_.layout({.parameters = build_.parameters(parameters),
                        .partition = Layout::Partition::each,
                        .shard = shard,
                        .n = static_cast<std::int32_t>(ranks.ranks),
                        .stride = static_cast<std::int32_t>(ranks.stride),
                        .align = static_cast<std::int32_t>(parts)});
}

/// ds_tensor, the 16-bit partition of each parameter; small parameters stay gathered (ds_persist). The secondary partitions of frozen
/// parameters were made in the first step.
void Zero3Parameters::declare() {
  for (ParameterId p : groups_.experts().local(all_parameters(program_.model()))) {
    State& state = at(p);
    const RankGroup& ranks = groups_.of(p);
    const UnitId name = program_.unit(p);
    state.persistent = numel(p) <= config_.persistence_threshold;
    state.shard = build_.buffer({.label = {"ds_tensor", name},
                                 .category = Category::parameters,
                                 .persistent = true,
                                 .host = offload(),
                                 .dtype = config_.parameters,
                                 .pool = default_stream,
                                 .layout = each({p}, ranks, true),
                                 .elements = gathered(p) / ranks.ranks});
    if (!program_.training().warm) continue;
    if (state.persistent) {
      state.status = Status::available;
      state.full = build_.buffer({.label = {"persistent parameter", name},
                                  .category = Category::unsharded_parameters,
                                  .role = Role::parameter,
                                  .persistent = true,
                                  .dtype = config_.parameters,
                                  .pool = allgather_,
                                  .layout = each({p}, ranks, false),
                                  .elements = gathered(p)});
    } else if (config_.hpz > 1 && frozen(p)) {
      state.secondary = secondary_buffer(p);
    }
  }
}

void Zero3Parameters::all_gather(const std::vector<ParameterId>& parameters, UnitId name) {
  std::vector<ParameterId> with_secondary, without;
  for (ParameterId p : parameters) (at(p).secondary.valid() ? with_secondary : without).push_back(p);
  for (bool secondary : {true, false})
    for (std::vector<ParameterId>& list : groups_.by_group(secondary ? with_secondary : without)) {
      std::sort(list.begin(), list.end());
      all_gather_in_group(list, secondary, name);
    }
}

/// all_gather_coalesced.
void Zero3Parameters::all_gather_in_group(const std::vector<ParameterId>& parameters, bool secondary, UnitId name) {
  Handle handle{.parameters = parameters, .in_registry = parameters.size(), .secondary = secondary};
  Elements payload;
  for (ParameterId p : parameters) {
    payload += gathered(p);
    at(p).status = Status::in_flight;
    at(p).handle = static_cast<std::int32_t>(handles_.size());
  }
  if (config_.quantized_weights)
    gather_quantized(handle, payload, name);
  else
    gather_plain(handle, payload, name);
  handles_.push_back(std::move(handle));
}

/// Own partitions into the rank's slice of a flat buffer, gathered in place; a single parameter without detour.
void Zero3Parameters::gather_plain(Handle& handle, Elements payload, UnitId name) {
  const ParameterId first = handle.parameters.front();
  Communicate gather{.kind = Collective::all_gather, .dtype = config_.parameters, .payload = payload};
  if (handle.parameters.size() == 1 && (handle.secondary || !offload())) {
    at(first).full = allocate_full(first, ranks_of(handle));
    gather.source = handle.secondary ? at(first).secondary : at(first).shard;
    gather.target = at(first).full;
  } else {
    handle.flat = build_.allocate({.label = {"all-gather flat tensor", name},
                                   .category = Category::communication_buffers,
                                   .dtype = config_.parameters,
                                   .pool = allgather_,
                                   .layout = each(handle.parameters, ranks_of(handle), false),
                                   .elements = payload});
    copy_partitions(handle, handle.flat, name);
    gather.target = handle.flat;
  }
  if (config_.hierarchical_gather) gather_between_nodes(payload, name);
  handle.gather = communicate(handle, gather, name);
}

/// One torch.cat.
void Zero3Parameters::copy_partitions(const Handle& handle, BufferId target, UnitId name) {
  const bool from_host = offload() && !handle.secondary;
  std::int32_t kernels = 1;
  for (ParameterId p : handle.parameters)
    build_.copy({"cat partitions", name}, allgather_,
                {.source = handle.secondary ? at(p).secondary : at(p).shard,
                 .target = target,
                 .count = gathered(p) / ranks_of(handle).ranks,
                 .path = from_host ? CopyPath::to_device : CopyPath::device,
                 .kernels = std::exchange(kernels, 0)});
}

/// qwZ: own partitions as fp16 (what the kernel reads), quantised to int8 with fp32 scales; both are gathered.
void Zero3Parameters::gather_quantized(Handle& handle, Elements payload, UnitId name) {
  const std::int64_t n = ranks_of(handle).ranks;
  const Elements own = payload / n, scales{quantization_groups(own.value())};
  const auto temporary = [&](const char* verb, DType dtype, Elements elements) {
    return build_.allocate(
        {.label = {verb, name}, .category = Category::communication_buffers, .dtype = dtype, .pool = allgather_, .elements = elements});
  };
  handle.flat = temporary("quantised weights and scales", DType::int8, payload + n * 4 * scales);
  const BufferId half = temporary("partitions in fp16", DType::fp16, own);
  copy_partitions(handle, half, name);
  const BufferId quantized = temporary("quantised partitions", DType::int8, own + 4 * scales);
  build_.copy({"CUDAQuantizer.quantize", name}, allgather_, {.source = half, .target = quantized, .count = own});
  build_.free(half);
  communicate(handle, {.kind = Collective::all_gather, .dtype = DType::int8, .payload = payload}, name);
  handle.gather = communicate(handle, {.kind = Collective::all_gather, .dtype = DType::fp32, .payload = n * scales}, name);
  build_.free(quantized, process_group_);
}

OpId Zero3Parameters::communicate(const Handle& handle, const Communicate& gather, UnitId name) {
  Communicate action = gather;
  action.communicator = config_.hierarchical_gather ? intra_node_.communicator : ranks_of(handle).communicator;
  build_.wait_stream(process_group_, allgather_);
  return build_.communicate({"DeepSpeed::all_gather", name}, process_group_, action);
}

/// _hierarchical_all_gather_params: first among the ranks of the same place in their nodes, synchronously on the current stream; what came
/// is cloned and spread to where the gather inside the node expects it.
void Zero3Parameters::gather_between_nodes(Elements payload, UnitId name) {
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

BufferId Zero3Parameters::allocate_full(ParameterId p, const RankGroup& ranks) {
  const bool stays = at(p).persistent && keeps_persistent_;
  const BufferId full = build_.buffer({.label = {stays ? "persistent parameter" : "gathered parameter", program_.unit(p)},
                                       .category = Category::unsharded_parameters,
                                       .role = Role::parameter,
                                       .persistent = stays,
                                       .dtype = config_.parameters,
                                       .pool = allgather_,
                                       .layout = each({p}, ranks, false),
                                       .elements = gathered(p)});
  build_.allocate(full);
  return full;
}

void Zero3Parameters::wait(ParameterId parameter) {
  if (fetch_events_.size() > max_ongoing_fetch_events) {
    build_.host_wait({"DeepSpeed::fetch_events", program_.unit(parameter)}, fetch_events_.front());
    fetch_events_.pop_front();
  }
  Handle& handle = handles_[static_cast<std::size_t>(at(parameter).handle)];
  build_.wait(allgather_, handle.gather);
  if (!handle.complete) rebuild(handle);
  at(parameter).status = Status::available;
  if (--handle.in_registry == 0)
    for (BufferId buffer : {handle.flat, handle.dequantized})
      if (buffer.valid()) build_.free(buffer);
  fetch_events_.push_back(build_.last(allgather_));
}

/// AllGatherCoalescedHandle.wait: every parameter is put together by torch.cat of its pieces; quantised ones are dequantised first, as one
/// fp16 tensor, a single one straight into its own.
void Zero3Parameters::rebuild(Handle& handle) {
  handle.complete = true;
  if (!handle.flat.valid()) return;
  const RankGroup& ranks = ranks_of(handle);
  BufferId source = handle.flat;
  if (config_.quantized_weights && handle.parameters.size() > 1) {
    Elements payload;
    for (ParameterId p : handle.parameters) payload += gathered(p);
    const UnitId name = program_.unit(handle.parameters.front());
    handle.dequantized = build_.allocate({.label = {"dequantised weights", name},
                                          .category = Category::communication_buffers,
                                          .dtype = DType::fp16,
                                          .pool = allgather_,
                                          .elements = payload});
    build_.copy({"CUDAQuantizer.dequantize", name}, allgather_, {.source = handle.flat, .target = handle.dequantized, .count = payload});
    source = handle.dequantized;
  }
  for (ParameterId p : handle.parameters) {
    at(p).full = allocate_full(p, ranks);
    build_.copy({"rebuild parameter", program_.unit(p)}, allgather_, {.source = source, .target = at(p).full, .count = Elements{numel(p)}});
  }
}

void Zero3Parameters::release(ParameterId parameter, bool saved) {
  State& state = at(parameter);
  make_secondary(parameter);
  if (saved)
    state.saved = state.full;
  else
    build_.free(state.full, default_stream);
  state.full = {};
  state.status = Status::not_available;
}

void Zero3Parameters::drop_saved(ParameterId parameter) {
  if (const BufferId saved = std::exchange(at(parameter).saved, {}); saved.valid()) build_.free(saved);
}

BufferId Zero3Parameters::secondary_buffer(ParameterId p) {
  return build_.buffer({.label = {"secondary partition", program_.unit(p)},
                        .category = Category::parameters,
                        .persistent = frozen(p),
                        .dtype = config_.parameters,
                        .pool = default_stream,
                        .layout = each({p}, hpz_group_, true),
                        .elements = gathered(p) / config_.hpz});
}

/// hpZ: the first release after a step keeps a 16-bit shard within the small group; later gathers stay inside it.
void Zero3Parameters::make_secondary(ParameterId p) {
  if (config_.hpz <= 1 || at(p).secondary.valid()) return;
  at(p).secondary = secondary_buffer(p);
  build_.allocate(at(p).secondary);
  const UnitId name = program_.unit(p);
  build_.host_wait({"DeepSpeed::secondary partition", name},
                   build_.copy({"secondary partition", name}, default_stream,
                               {.source = at(p).full, .target = at(p).secondary, .count = gathered(p) / config_.hpz}));
}

void Zero3Parameters::drop_secondary() {
  for (ParameterId p : groups_.experts().local(all_parameters(program_.model())))
    if (at(p).secondary.valid() && !frozen(p)) build_.free(std::exchange(at(p).secondary, {}));
}

void Zero3Parameters::gather_persistent() {
  bool any = false;
  for (ParameterId p : groups_.experts().local(all_parameters(program_.model()))) {
    State& state = at(p);
    const RankGroup& ranks = groups_.of(p);
    if (!state.persistent) continue;
    const UnitId name = program_.unit(p);
    if (!state.full.valid()) {  // the first step: from now on they stay
      keep_persistent();
      state.full = allocate_full(p, ranks);
      state.status = Status::available;
    }
    build_.wait_stream(process_group_, default_stream);
    build_.communicate({"DeepSpeed::all_gather persistent", name}, process_group_,
                       {.kind = Collective::all_gather,
                        .communicator = ranks.communicator,
                        .dtype = config_.parameters,
                        .payload = gathered(p),
                        .source = state.shard,
                        .target = state.full});
    any = true;
  }
  if (any) build_.synchronize({"DeepSpeed::persistent parameters", {}});
}

void Zero3Parameters::compare_over_ranks(std::size_t length) {
  for (const auto elements : {std::int64_t{1}, static_cast<std::int64_t>(length)}) {
    if (elements == 0) continue;
    const BufferId list = build_.allocate({.label = {"assert_ints_same_as_other_ranks", {}},
                                           .category = Category::temporaries,
                                           .dtype = DType::int64,
                                           .pool = default_stream,
                                           .elements = Elements{elements}});
    const OpId sent = build_.communicate({"DeepSpeed::broadcast of the trace", {}}, default_stream,
                                         {.kind = Collective::broadcast,
                                          .communicator = build_.communicator("dp", "dp", program_.job.world_size),
                                          .dtype = DType::int64,
                                          .control = true,
                                          .payload = Elements{elements},
                                          .target = list});
    build_.free(list);
    build_.host_wait({"DeepSpeed::trace", {}}, sent);
  }
}

}  // namespace shardsim
