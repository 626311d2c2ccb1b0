// SPDX-License-Identifier: Apache-2.0
#include "strategies/pytorch/flat_param_handle.hpp"

#include <algorithm>

#include "strategies/shared/sharding.hpp"

namespace shardsim {
namespace {

/// _get_gradient_predivide_factor: a power of two near the square root of the world size; the rest is divided after the reduction.
std::int64_t predivide_factor(std::int64_t world_size) {
  std::int64_t factor = 1;
  while (world_size % factor == 0 && world_size / factor > factor) factor *= 2;
  return factor;
}

std::int32_t first_block_of(const Model& model) {
  const auto& layers = *model.layers;
  const auto found = std::ranges::find_if(layers, [&](const Layer& layer) { return model.type_of(layer).block; });
  return static_cast<std::int32_t>(found - layers.begin());
}

}  // namespace

FlatParamHandles::FlatParamHandles(Program& program, const Fsdp1Config& config)
    : program_(program),
      build_(program.build),
      config_(config),
      unshard_(build_.stream("unshard")),
      pre_unshard_(build_.stream("pre_unshard")),
      post_backward_(build_.stream("post_backward")),
      optimizer_(program),
      offload_(program.training().offload.parameters != OffloadTarget::none) {
  shard_group_ = build_.communicator("shard", "shard", config_.shard);
  if (config_.replicate > 1) {
    replicate_group_ = build_.communicator("replicate", "replicate", config_.replicate, config_.shard);
    all_reduce_ = config_.shard > 1 ? build_.stream("all_reduce") : post_backward_;
  }
  const Model& model = program_.model();
  const auto& layers = *model.layers;
  of_layer_.assign(layers.size(), nullptr);
  of_parameter_.assign(model.parameters->size(), nullptr);
  std::vector<bool> taken(model.parameters->size(), false);
  std::vector<ParameterId> rest;
  const std::int32_t first_block = first_block_of(model);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const bool block = model.type_of(layers[l]).block;
    const bool embedding = config_.wrap == Fsdp1Config::Wrap::embedding && static_cast<std::int32_t>(l) < first_block && model.tied.empty();
    const bool unit = config_.wrap != Fsdp1Config::Wrap::none && (block || embedding);
    std::vector<ParameterId> own;
    for (ParameterId p : layers[l].parameters) {
      if (taken[static_cast<std::size_t>(p.index)]) continue;
      taken[static_cast<std::size_t>(p.index)] = true;
      (unit ? own : rest).push_back(p);
    }
    if (!own.empty()) of_layer_[l] = add_unit(layers[l].name, own, false);
  }
  if (!rest.empty()) root_ = add_unit("root", rest, true);
}

/// A flat parameter trains as a whole or not at all, unless use_orig_params is on. PEFT's fsdp_auto_wrap_policy wraps adapters apart in
/// any case; it makes one unit of each matrix, here those of a block make one.
FlatParamHandle* FlatParamHandles::add_unit(const std::string& name, const std::vector<ParameterId>& parameters, bool root) {
  std::vector<ParameterId> trained, frozen;
  for (ParameterId p : parameters) (program_.model().at(p).trainable ? trained : frozen).push_back(p);
  const bool apart = config_.wrap == Fsdp1Config::Wrap::peft || !config_.use_orig_params;
  if (trained.empty() || frozen.empty() || !apart) return add(name, parameters, root);
  FlatParamHandle* handle = add(name, std::move(frozen), root);
  handle->apart = add(name + " (trained)", std::move(trained), root);
  return handle;
}

/// Elements of this rank's shard that belong to trained parameters.
Elements FlatParamHandles::trained_in_shard(const FlatParamHandle& handle) const {
  const FlatLayout flat = flat_layout(program_.model(), handle.parameters, handle.align, config_.shard);
  const std::int64_t length = flat.elements.value() / config_.shard, begin = length * (program_.job.rank % config_.shard);
  if (std::all_of(handle.parameters.begin(), handle.parameters.end(), [&](ParameterId p) { return program_.model().at(p).trainable; }))
    return Elements{length};
  std::int64_t trained = 0;
  for (std::size_t i = 0; i < handle.parameters.size(); ++i) {
    const Parameter& p = program_.model().at(handle.parameters[i]);
    if (p.trainable)
      trained += std::max<std::int64_t>(0, std::min(flat.starts[i] + p.elements.value(), begin + length) - std::max(flat.starts[i], begin));
  }
  return Elements{trained};
}

FlatParamHandle* FlatParamHandles::add(const std::string& name, std::vector<ParameterId> parameters, bool root) {
  const Model& model = program_.model();
  auto handle = std::make_unique<FlatParamHandle>();
  handle->name = build_.unit(name);
  handle->root = root;
  handle->parameters = std::move(parameters);
  const std::optional<DType> own = model.at(handle->parameters.front()).dtype;  // PEFT's adapters; a MixedPrecision casts them too
  const bool keeps_own = own && config_.stored == config_.parameters;
  handle->stored = own.value_or(config_.stored);
  handle->gathered = keeps_own ? *own : config_.parameters;
  handle->reduce = keeps_own ? *own : config_.reduce;
  handle->align = config_.use_orig_params ? static_cast<std::int32_t>(16 / size_of(handle->gathered)) : 1;
  handle->unpadded = flat_layout(model, handle->parameters, handle->align, 1).elements;
  handle->padded = round_up(handle->unpadded, config_.shard);
  handle->tensor_gradients.resize(handle->parameters.size());
  handle->trains = std::any_of(handle->parameters.begin(), handle->parameters.end(), [&](ParameterId p) { return model.at(p).trainable; });
  for (ParameterId p : handle->parameters) of_parameter_[static_cast<std::size_t>(p.index)] = handle.get();
  const bool computes_from_storage = config_.shard == 1 && handle->stored == handle->gathered;
  handle->shard = build_.buffer({.label = {"flat parameter shard", handle->name},
                                 .category = Category::parameters,
                                 .role = computes_from_storage ? Role::parameter : Role::none,
                                 .persistent = true,
                                 .host = offload_,
                                 .dtype = handle->stored,
                                 .pool = default_stream,
                                 .layout = layout(*handle, true),
                                 .elements = handle->padded / config_.shard});
  if (handle->trains)
    optimizer_.add({.label = {"optimizer", handle->name},
                    .parameters = handle->parameters,
                    .weights = handle->shard,
                    .layout = layout(*handle, true),
                    .count = trained_in_shard(*handle),
                    .dtype = handle->stored});
  if (handle->trains && !program_.training().optimizer.set_to_none) {
    handle->kept_gradient = build_.buffer(gradient_of(*handle));
    if (program_.training().warm) handle->sharded_gradient = handle->kept_gradient;  // else the first backward makes it
  }
  handles_.push_back(std::move(handle));
  return handles_.back().get();
}

LayoutId FlatParamHandles::layout(const FlatParamHandle& handle, bool shard) {
  return build_.layout({.parameters = build_.parameters(handle.parameters),
                        .partition = Layout::Partition::flat,
                        .shard = shard,
                        .n = static_cast<std::int32_t>(config_.shard),
                        .align = handle.align,
                        .multiple = static_cast<std::int32_t>(config_.shard)});
}

BufferId FlatParamHandles::make(const char* verb, const FlatParamHandle& handle, Category category, DType dtype, StreamId pool, bool full,
                                Role role) {
  return build_.allocate({.label = {verb, handle.name},
                          .category = category,
                          .role = role,
                          .dtype = dtype,
                          .pool = pool,
                          .layout = layout(handle, !full),
                          .elements = full ? handle.padded : handle.padded / config_.shard});
}

FlatParamHandle* FlatParamHandles::after(const FlatParamHandle* handle) {
  bool seen = handle == nullptr;
  for (FlatParamHandle* other : of_layer_) {
    if (other != nullptr && seen) return other;
    seen = seen || other == handle;
  }
  return nullptr;
}

void FlatParamHandles::wait_for_default_stream() {
  build_.wait_stream(unshard_, default_stream);
  build_.wait_stream(pre_unshard_, default_stream);
}

void FlatParamHandles::unshard(FlatParamHandle& handle) {
  const bool needed = !handle.unsharded.valid() && !(config_.shard == 1 && handle.stored == handle.gathered && !offload_);
  BufferId source = handle.shard;
  const bool cast = handle.stored != handle.gathered || offload_;
  if (needed && cast && config_.shard > 1) {
    source = make("cast shard", handle, Category::communication_buffers, handle.gathered, pre_unshard_, false);
    build_.copy({"FSDP::pre_unshard", handle.name}, pre_unshard_,
                {.source = handle.shard,
                 .target = source,
                 .count = handle.padded / config_.shard,
                 .path = offload_ ? CopyPath::to_device : CopyPath::device});
    build_.wait_stream(unshard_, pre_unshard_);
  }
  // The limiter counts calls, not gathers: it pops even when the parameters are still full.
  if (config_.limit_all_gathers)
    if (const OpId event = free_events_.dequeue_if_needed(); event.valid()) build_.host_wait({"FSDP::rate_limiter", handle.name}, event);
  if (!needed) return;
  handle.unsharded =
      make("unsharded flat parameter", handle, Category::unsharded_parameters, handle.gathered, unshard_, true, Role::parameter);
  if (config_.shard > 1) {
    build_.communicate({"FSDP::all_gather", handle.name}, unshard_,
                       {.kind = Collective::all_gather,
                        .communicator = shard_group_,
                        .dtype = handle.gathered,
                        .payload = handle.padded,
                        .source = source,
                        .target = handle.unsharded});
    if (source != handle.shard) build_.free(source, unshard_);
  } else {
    build_.copy({"FSDP::pre_unshard", handle.name}, unshard_,
                {.source = handle.shard,
                 .target = handle.unsharded,
                 .count = handle.padded,
                 .path = offload_ ? CopyPath::to_device : CopyPath::device});
  }
}

void FlatParamHandles::wait_for_unshard() { build_.wait_stream(default_stream, unshard_); }

void FlatParamHandles::reshard(FlatParamHandle& handle) {
  if (!handle.unsharded.valid()) return;
  build_.free(handle.unsharded, default_stream);
  handle.unsharded = {};
  if (config_.limit_all_gathers) free_events_.enqueue(build_.last(default_stream));
}

void FlatParamHandles::produce_gradient(ParameterId parameter) {
  FlatParamHandle& handle = *of_parameter_[static_cast<std::size_t>(parameter.index)];
  const auto index =
      static_cast<std::size_t>(std::find(handle.parameters.begin(), handle.parameters.end(), parameter) - handle.parameters.begin());
  handle.tensor_gradients[index] = build_.allocate({.label = {"gradient of a view", handle.name},
                                                    .category = Category::unsharded_gradients,
                                                    .role = Role::gradient,
                                                    .dtype = handle.gathered,
                                                    .pool = default_stream,
                                                    .layout = build_.layout({.parameters = build_.parameters(std::span(&parameter, 1))}),
                                                    .elements = program_.model().at(parameter).elements});
}

void FlatParamHandles::concatenate_gradients(FlatParamHandle& handle) {
  const BufferId fresh = make("flat gradient", handle, Category::unsharded_gradients, handle.gathered, default_stream, true);
  std::int32_t kernels = 1;
  for (std::size_t i = 0; i < handle.parameters.size(); ++i) {
    BufferId& gradient = handle.tensor_gradients[i];
    if (!gradient.valid()) continue;
    build_.copy({"SplitBackward::cat", handle.name}, default_stream,
                {.source = gradient,
                 .target = fresh,
                 .count = program_.model().at(handle.parameters[i]).elements,
                 .kernels = std::exchange(kernels, 0)});
    build_.free(gradient);
    gradient = {};
  }
  if (!handle.flat_gradient.valid()) {
    handle.flat_gradient = fresh;
    return;
  }
  build_.copy({"AccumulateGrad", handle.name}, default_stream,
              {.source = fresh, .target = handle.flat_gradient, .count = handle.padded, .accumulate = true});
  build_.free(fresh);
}

void FlatParamHandles::reduce_gradient(FlatParamHandle& handle) {
  build_.wait_stream(post_backward_, default_stream);
  const std::int64_t world = config_.shard * config_.replicate, pre = predivide_factor(world);
  BufferId input = handle.flat_gradient;
  const bool cast = handle.reduce != handle.gathered;
  const bool pad = !config_.use_orig_params && config_.shard > 1 && handle.unpadded != handle.padded;
  if (cast || pad) {
    input = make("reduction input", handle, Category::communication_buffers, handle.reduce, post_backward_, true);
    build_.copy({"FSDP::cast_and_predivide", handle.name}, post_backward_,
                {.source = handle.flat_gradient, .target = input, .count = handle.padded, .scale = 1.0 / static_cast<double>(pre)});
  } else {
    build_.copy({"FSDP::predivide", handle.name}, post_backward_,
                {.source = input, .target = input, .count = handle.padded, .scale = 1.0 / static_cast<double>(pre)});
  }
  BufferId reduced = input;
  if (config_.shard > 1) {
    reduced = make("reduced shard", handle, Category::communication_buffers, handle.reduce, post_backward_, false);
    build_.communicate({"FSDP::reduce_scatter", handle.name}, post_backward_,
                       {.kind = Collective::reduce_scatter,
                        .communicator = shard_group_,
                        .dtype = handle.reduce,
                        .payload = handle.padded,
                        .source = input,
                        .target = reduced});
  }
  if (config_.replicate > 1) {
    build_.wait_stream(all_reduce_, post_backward_);
    build_.communicate({"FSDP::all_reduce", handle.name}, all_reduce_,
                       {.kind = Collective::all_reduce,
                        .communicator = replicate_group_,
                        .dtype = handle.reduce,
                        .payload = handle.padded / config_.shard,
                        .target = reduced});
  }
  const StreamId stream = config_.replicate > 1 ? all_reduce_ : post_backward_;
  build_.copy({"FSDP::postdivide", handle.name}, stream,
              {.source = reduced,
               .target = reduced,
               .count = handle.padded / config_.shard,
               .scale = static_cast<double>(pre) / static_cast<double>(world)});
  accumulate_shard(handle, reduced);
  if (input != handle.flat_gradient && input != reduced) build_.free(input);
  if (reduced != handle.flat_gradient) build_.free(reduced);
  build_.free(handle.flat_gradient, post_backward_);
  handle.flat_gradient = {};
}

Buffer FlatParamHandles::gradient_of(const FlatParamHandle& handle) {
  return {.label = {"sharded gradient", handle.name},
          .category = Category::gradients,
          .persistent = !program_.training().optimizer.set_to_none,
          .host = offload_,
          .dtype = handle.stored,
          .pool = post_backward_,
          .layout = layout(handle, true),
          .elements = handle.padded / config_.shard};
}

/// Cast to the stored dtype and add to _saved_grad_shard.
void FlatParamHandles::accumulate_shard(FlatParamHandle& handle, BufferId reduced) {
  const StreamId stream = config_.replicate > 1 ? all_reduce_ : post_backward_;
  const bool first = !handle.sharded_gradient.valid();
  if (first) {
    handle.sharded_gradient = handle.kept_gradient.valid() ? handle.kept_gradient : build_.buffer(gradient_of(handle));
    build_.allocate(handle.sharded_gradient);
  }
  build_.copy({first ? "FSDP::save_grad_shard" : "FSDP::accumulate_grad_shard", handle.name}, stream,
              {.source = reduced,
               .target = handle.sharded_gradient,
               .count = handle.padded / config_.shard,
               .path = offload_ ? CopyPath::to_host : CopyPath::device,
               .accumulate = !first});
}

void FlatParamHandles::finish_backward() {
  build_.wait_stream(default_stream, post_backward_);
  if (config_.replicate > 1) build_.wait_stream(default_stream, all_reduce_);
}

void FlatParamHandles::step() {
  std::vector<OptimizerStep::Gradients> gradients;
  for (const OptimizerTarget& target : optimizer_.targets()) {
    gradients.emplace_back();
    for (const auto& handle : handles_)
      if (handle->shard == target.weights && handle->sharded_gradient.valid())
        gradients.back() = {{handle->sharded_gradient}, {target.count}};
  }
  if (offload_) build_.synchronize({"FSDP::offload gradients", {}});
  optimizer_.unscale(gradients, shard_group_, config_.stored);
  optimizer_.clip(gradients, shard_group_, default_stream, config_.stored, false);
  optimizer_.emit(gradients);
  for (const auto& handle : handles_) {
    if (!handle->sharded_gradient.valid()) continue;
    zero_grad(program_, {handle->sharded_gradient});
    handle->sharded_gradient = {};
  }
}

}  // namespace shardsim
