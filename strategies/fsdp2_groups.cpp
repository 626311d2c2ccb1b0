// SPDX-License-Identifier: Apache-2.0
#include "strategies/fsdp2_groups.hpp"

#include <algorithm>
#include <charconv>

#include "strategies/sharding.hpp"

namespace shardsim {
namespace {

constexpr StreamId default_stream = ScheduleBuilder::compute_stream();

Elements padded_elements(const Model& model, const std::vector<ParameterId>& parameters, std::int64_t n) {
  Elements sum;
  for (ParameterId p : parameters) sum += rows_padded(model.at(p), n);
  return sum;
}

bool offloads(const Training& training) { return training.offload.parameters != OffloadTarget::none; }

}  // namespace

std::optional<std::int64_t> reshard_size(const std::string& word) {
  if (word == "true") return 1;
  if (word == "false") return 0;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value < 1) return std::nullopt;
  return value;
}

Fsdp2Config fsdp2_config(const Job& job) {
  const Options& options = job.strategy.options;
  const Precision& precision = job.training.precision;
  Fsdp2Config c;
  c.replicate = options.integer("replicate", 1);
  c.shard = job.world_size / c.replicate;
  c.reshard = reshard_size(options.word("reshard_after_forward", "true")).value_or(1);
  c.forward_prefetch = options.integer("forward_prefetch", 0);
  c.backward_prefetch = options.integer("backward_prefetch", 1);
  c.separate_reduce_scatter_group = options.boolean("separate_reduce_scatter_group", false);
  c.max_input_buffers = options.integer("reduce_scatter_max_input_buffers", 1);
  c.sync_every_micro_batch = options.boolean("requires_gradient_sync", true);
  c.all_reduce_every_micro_batch = options.boolean("requires_all_reduce", true);
  c.reshard_after_backward = options.boolean("reshard_after_backward", true);
  c.unshard_embedding_in_backward = options.boolean("unshard_in_backward", true);
  c.torchtitan_wrapping = options.word("wrap", "blocks") == "torchtitan";
  c.parameters = precision.parameters;
  c.stored = precision.master.value_or(precision.parameters);
  c.gradients = precision.parameters;
  c.reduce = precision.reduce.value_or(precision.parameters);
  if (const auto word = dtype_from(options.word("reduce_dtype", ""))) c.reduce = *word;
  return c;
}

ParamGroups::ParamGroups(Program& program, const Fsdp2Config& config)
    : program_(program), build_(program.build), config_(config), optimizer_(program) {
  comm_.all_gather_copy_in = build_.stream("all_gather_copy_in");
  comm_.all_gather = build_.stream("all_gather");
  comm_.reduce_scatter = build_.stream("reduce_scatter");
  if (config_.replicate > 1) comm_.all_reduce = build_.stream("all_reduce");
  make_communicators();
  make_groups();
}

void ParamGroups::make_communicators() {
  comm_.shard = build_.communicator("shard", "shard", config_.shard);
  comm_.reduce = config_.separate_reduce_scatter_group ? build_.communicator("shard (reduce-scatter)", "shard", config_.shard) : comm_.shard;
  if (config_.replicate > 1) comm_.replicate = build_.communicator("replicate", "replicate", config_.replicate, config_.shard);
  if (config_.reshard > 1) comm_.reshard = build_.communicator("reshard", "reshard", config_.reshard);
}

void ParamGroups::make_groups() {
  const Model& model = program_.model();
  const auto& layers = *model.layers;
  entered_.assign(layers.size(), nullptr);
  left_.assign(layers.size(), nullptr);
  group_of_.assign(model.parameters->size(), nullptr);
  std::vector<bool> owned(model.parameters->size(), false);
  const auto take = [&](std::int32_t first, std::int32_t last) {
    std::vector<ParameterId> ids;
    for (std::int32_t l = first; l <= last; ++l)
      for (ParameterId p : layers[static_cast<std::size_t>(l)].parameters)
        if (!owned[static_cast<std::size_t>(p.index)]) {
          owned[static_cast<std::size_t>(p.index)] = true;
          ids.push_back(p);
        }
    return ids;
  };
  const auto count = static_cast<std::int32_t>(layers.size());
  const auto is_block = [&](std::int32_t l) { return model.type_of(layers[static_cast<std::size_t>(l)]).block; };
  for (std::int32_t l = 0; l < count; ++l)
    if (is_block(l)) add_group(layers[static_cast<std::size_t>(l)].name, l, l, take(l, l), false);
  if (config_.torchtitan_wrapping && model.tied.empty()) {
    std::int32_t first_block = 0, last_block = count - 1;
    while (first_block < count && !is_block(first_block)) ++first_block;
    while (last_block >= 0 && !is_block(last_block)) --last_block;
    if (first_block > 0 && first_block < count) add_group("embedding", 0, first_block - 1, take(0, first_block - 1), false);
    if (last_block >= 0 && last_block + 1 < count) add_group("norm and head", last_block + 1, count - 1, take(last_block + 1, count - 1), false);
  }
  if (std::vector<ParameterId> rest = take(0, count - 1); !rest.empty()) add_group("root", 0, count - 1, std::move(rest), true);
  std::sort(groups_.begin(), groups_.end(), [](const auto& a, const auto& b) { return a->first_layer < b->first_layer; });
  if (root_) module_order_.push_back(root_);
  for (const auto& group : groups_)
    if (group.get() != root_) module_order_.push_back(group.get());
}

LayoutId ParamGroups::rows_layout(const std::vector<ParameterId>& parameters, bool shard, bool unpadded) {
  return build_.layout({.parameters = build_.parameters(parameters), .partition = Layout::Partition::rows, .shard = shard, .unpadded = unpadded,
                        .n = static_cast<std::int32_t>(config_.shard)});
}

void ParamGroups::add_group(const std::string& name, std::int32_t first, std::int32_t last, std::vector<ParameterId> parameters, bool root) {
  if (parameters.empty()) return;
  const Model& model = program_.model();
  auto group = std::make_unique<ParamGroup>();
  group->name = build_.unit(name);
  group->first_layer = first;
  group->last_layer = last;
  group->embedding = name == "embedding";
  group->parameters = std::move(parameters);
  for (ParameterId p : group->parameters) {
    group_of_[static_cast<std::size_t>(p.index)] = group.get();
    if (model.at(p).trainable) group->trainable.push_back(p);
  }
  group->gradients.resize(group->trainable.size());
  group->accumulated.resize(group->trainable.size());
  group->padded = padded_elements(model, group->parameters, config_.shard);
  group->padded_trainable = padded_elements(model, group->trainable, config_.shard);
  group->shard = build_.buffer({.label = {"sharded parameters", group->name},
                                .category = Category::parameters,
                                .persistent = true,
                                .host = offloads(program_.training()),
                                .dtype = config_.stored,
                                .pool = default_stream,
                                .layout = rows_layout(group->parameters, true),
                                .elements = group->padded / config_.shard});
  Elements owned;
  for (ParameterId p : group->trainable) owned += rows_owned(model.at(p), config_.shard, program_.job.rank % config_.shard);
  optimizer_.add({.label = {"optimizer", group->name}, .parameters = group->trainable, .weights = group->shard,
                  .layout = rows_layout(group->trainable, true, true), .count = owned, .dtype = config_.stored});
  if (root) {
    root_ = group.get();
  } else {
    entered_[static_cast<std::size_t>(first)] = group.get();
    left_[static_cast<std::size_t>(last)] = group.get();
  }
  groups_.push_back(std::move(group));
}

ParamGroup* ParamGroups::entered_at(std::int32_t layer) { return entered_[static_cast<std::size_t>(layer)]; }
ParamGroup* ParamGroups::left_at(std::int32_t layer) { return left_[static_cast<std::size_t>(layer)]; }

ParamGroup* ParamGroups::neighbour(const ParamGroup& group, std::int64_t ahead) {
  std::int64_t seen = -1;
  for (const auto& g : groups_) {
    if (g.get() == root_) continue;
    if (g.get() == &group) seen = 0;
    else if (seen >= 0 && ++seen == ahead) return g.get();
  }
  return nullptr;
}

BufferId ParamGroups::make(const char* verb, const ParamGroup& group, Category category, DType dtype, StreamId pool, Elements elements, LayoutId layout, Role role) {
  return build_.allocate({.label = {verb, group.name}, .category = category, .role = role, .dtype = dtype, .pool = pool, .layout = layout, .elements = elements});
}

void ParamGroups::begin_micro_batch(std::int32_t index) {
  micro_batch_ = index;
  for (const auto& group : groups_) group->post_backward_done = false;
}

// Forward and backward gathers ---------------------------------------------------------------------------------------------------------

void ParamGroups::unshard(ParamGroup& group, Phase phase) {
  if (group.unsharded.valid() || group.gather_pending || config_.shard == 1) return;
  if (phase == Phase::backward && group.embedding && !config_.unshard_embedding_in_backward) return;
  group.gather_pending = true;
  group.gathered_over_m = group.resharded.valid();
  copy_in_and_all_gather(group);
}

/// foreach_all_gather: cast and copy the shard into its slice of the output, then gather in place.
void ParamGroups::copy_in_and_all_gather(ParamGroup& group) {
  const bool over_m = group.gathered_over_m;
  const std::int64_t n = over_m ? config_.reshard : config_.shard;
  const Elements full = over_m ? padded_elements(program_.model(), group.parameters, n) : group.padded;
  BufferId cast;
  if (config_.stored != config_.parameters && !over_m)
    cast = make("cast shard", group, Category::communication_buffers, config_.parameters, comm_.all_gather_copy_in, full / n, rows_layout(group.parameters, true));
  const LayoutId rows = build_.layout({.parameters = build_.parameters(group.parameters), .partition = Layout::Partition::rows, .n = static_cast<std::int32_t>(n)});
  group.all_gather_output = make("all-gather output", group, Category::communication_buffers, config_.parameters, comm_.all_gather_copy_in, full, rows);
  build_.copy({"FSDP::all_gather_copy_in", group.name}, comm_.all_gather_copy_in,
              {.source = over_m ? group.resharded : group.shard, .target = group.all_gather_output, .count = full / n,
               .path = offloads(program_.training()) && !over_m ? CopyPath::to_device : CopyPath::device});
  build_.wait_stream(comm_.all_gather, comm_.all_gather_copy_in);
  group.all_gathered = build_.communicate({"FSDP::all_gather", group.name}, comm_.all_gather,
                                          {.kind = Collective::all_gather, .communicator = over_m ? comm_.reshard : comm_.shard,
                                           .dtype = config_.parameters, .payload = full, .target = group.all_gather_output});
  if (cast.valid()) build_.free(cast);
}

void ParamGroups::drop_all_gather_state() {
  if (!all_gather_state_) return;
  build_.wait(comm_.all_gather_copy_in, last_copy_out_);
  build_.wait(comm_.all_gather, last_copy_out_);
  build_.free(all_gather_state_->all_gather_output);
  all_gather_state_->all_gather_output = {};
  all_gather_state_ = nullptr;
}

void ParamGroups::wait_for_unshard(ParamGroup& group, Phase phase) {
  if (group.unsharded.valid()) return;
  if (config_.shard > 1 && !group.gather_pending) return;
  if (phase == Phase::forward) drop_all_gather_state();
  const BufferId source = config_.shard > 1 ? group.all_gather_output : group.shard;
  if (config_.shard > 1) build_.wait(default_stream, group.all_gathered);
  const Elements count = total_elements(program_.model(), group.parameters);
  const LayoutId whole = build_.layout({.parameters = build_.parameters(group.parameters)});
  group.unsharded = make("unsharded parameters", group, Category::unsharded_parameters, config_.parameters, default_stream,
                         config_.shard > 1 ? group.padded : count, whole, Role::parameter);
  last_copy_out_ = build_.copy({"FSDP::all_gather_copy_out", group.name}, default_stream, {.source = source, .target = group.unsharded, .count = count});
  group.gather_pending = false;
  if (config_.shard == 1) return;
  all_gather_state_ = &group;
  if (phase == Phase::backward) drop_all_gather_state();  // freed at once: the next all-gather was issued already
}

void ParamGroups::reshard(ParamGroup& group) {
  if (!group.unsharded.valid()) return;
  build_.free(group.unsharded);
  group.unsharded = {};
  if (group.resharded.valid()) {
    build_.free(group.resharded);
    group.resharded = {};
  }
}

void ParamGroups::reshard_after_forward(ParamGroup& group) {
  if (config_.reshard == 0 || !group.unsharded.valid()) return;
  if (config_.reshard == 1 || config_.reshard == config_.shard) return reshard(group);
  const Elements part = padded_elements(program_.model(), group.parameters, config_.reshard) / config_.reshard;
  const LayoutId rows = build_.layout({.parameters = build_.parameters(group.parameters), .partition = Layout::Partition::rows, .shard = true,
                                       .n = static_cast<std::int32_t>(config_.reshard)});
  const BufferId resharded = make("parameters resharded after forward", group, Category::unsharded_parameters, config_.parameters, default_stream, part, rows);
  const OpId event = build_.copy({"FSDP::reshard_after_forward", group.name}, default_stream, {.source = group.unsharded, .target = resharded, .count = part});
  reshard(group);
  group.resharded = resharded;
  build_.wait(comm_.all_gather_copy_in, event);
  build_.wait(comm_.all_gather, event);
}

void ParamGroups::finish_forward() { drop_all_gather_state(); }

// Gradients ------------------------------------------------------------------------------------------------------------------------------

void ParamGroups::produce_gradient(ParameterId parameter) {
  ParamGroup& group = *group_of_[static_cast<std::size_t>(parameter.index)];
  const auto index = static_cast<std::size_t>(std::find(group.trainable.begin(), group.trainable.end(), parameter) - group.trainable.begin());
  BufferId& gradient = group.gradients[index];
  if (gradient.valid()) return;  // gradient sync is off and autograd adds to what is there
  gradient = make("unsharded .grad", group, Category::unsharded_gradients, config_.gradients, default_stream, program_.model().at(parameter).elements,
                  build_.layout({.parameters = build_.parameters(std::span(&parameter, 1))}), Role::gradient);
}

void ParamGroups::accumulate_unsharded(ParamGroup& group) {
  for (std::size_t i = 0; i < group.trainable.size(); ++i) {
    if (!group.accumulated[i].valid() || !group.gradients[i].valid()) continue;
    build_.copy({"FSDP::accumulate_unsharded_grad", group.name}, default_stream,
                {.source = group.gradients[i], .target = group.accumulated[i], .count = program_.model().at(group.trainable[i]).elements, .accumulate = true});
    build_.free(group.gradients[i]);
    group.gradients[i] = {};
  }
}

void ParamGroups::post_backward(ParamGroup& group) {
  group.post_backward_done = true;
  accumulate_unsharded(group);
  const bool last = micro_batch_ + 1 == program_.micro_batches();
  if (config_.reshard_after_backward || last) reshard(group);
  const bool any = std::any_of(group.gradients.begin(), group.gradients.end(), [](BufferId b) { return b.valid(); }) ||
                   std::any_of(group.accumulated.begin(), group.accumulated.end(), [](BufferId b) { return b.valid(); });
  if (!any) return;
  if (!config_.sync_every_micro_batch && !last) {
    if (config_.reduce == config_.gradients) return;
    for (std::size_t i = 0; i < group.trainable.size(); ++i) {  // to_accumulated_grad_if_needed: unpadded, full size, in reduce dtype
      if (!group.gradients[i].valid()) continue;
      const ParameterId p = group.trainable[i];
      group.accumulated[i] = make("accumulated .grad", group, Category::unsharded_gradients, config_.reduce, default_stream, program_.model().at(p).elements,
                                  build_.layout({.parameters = build_.parameters(std::span(&p, 1))}));
      build_.copy({"FSDP::to_accumulated_grad", group.name}, default_stream,
                  {.source = group.gradients[i], .target = group.accumulated[i], .count = program_.model().at(p).elements});
      build_.free(group.gradients[i]);
      group.gradients[i] = {};
    }
    return;
  }
  reduce(group);
}

void ParamGroups::drop_oldest_reduce_scatter() {
  const ReduceScatterState oldest = reduce_scatter_states_.front();
  reduce_scatter_states_.pop_front();
  build_.wait(default_stream, oldest.event);
  build_.free(oldest.input);
}

/// foreach_reduce: chunk_cat into one padded input, reduce-scatter, all-reduce over replicas, cast, and accumulate into the shard's .grad.
void ParamGroups::reduce(ParamGroup& group) {
  while (static_cast<std::int64_t>(reduce_scatter_states_.size()) >= config_.max_input_buffers) drop_oldest_reduce_scatter();
  if (group.post_reduce.valid()) build_.wait(default_stream, group.post_reduce);
  if (group.all_reduce_state.valid()) {
    build_.free(group.all_reduce_state);
    group.all_reduce_state = {};
  }
  const BufferId input = make("reduce-scatter input", group, Category::communication_buffers, config_.reduce, default_stream, group.padded_trainable,
                              rows_layout(group.trainable, false));
  std::int32_t kernels = 1;  // chunk_cat is one kernel over all gradients
  for (std::size_t i = 0; i < group.trainable.size(); ++i) {
    BufferId& gradient = group.accumulated[i].valid() ? group.accumulated[i] : group.gradients[i];
    if (!gradient.valid()) continue;
    build_.copy({"FSDP::chunk_cat", group.name}, default_stream,
                {.source = gradient, .target = input, .count = program_.model().at(group.trainable[i]).elements, .kernels = std::exchange(kernels, 0)});
  }
  for (std::size_t i = 0; i < group.trainable.size(); ++i)
    for (BufferId* gradient : {&group.accumulated[i], &group.gradients[i]})
      if (gradient->valid()) {
        build_.free(*gradient);
        *gradient = {};
      }
  build_.wait_stream(comm_.reduce_scatter, default_stream);
  const bool becomes_gradient = config_.reduce == config_.stored && !group.sharded_gradient.valid() && !offloads(program_.training());
  BufferId output = make("reduce-scatter output", group, becomes_gradient ? Category::gradients : Category::communication_buffers, config_.reduce,
                         comm_.reduce_scatter, group.padded_trainable / config_.shard, rows_layout(group.trainable, true));
  reduce_scatter(group, input, output);
  reduce_scatter_states_.push_back({input, build_.last(comm_.reduce_scatter)});
  StreamId post_reduce = comm_.reduce_scatter;
  if (config_.replicate > 1) {
    const bool last = micro_batch_ + 1 == program_.micro_batches();
    if (group.partial_reduce.valid()) {
      build_.copy({"FSDP::accumulate_partial_reduce", group.name}, comm_.reduce_scatter,
                  {.source = group.partial_reduce, .target = output, .count = group.padded_trainable / config_.shard, .accumulate = true});
      build_.free(group.partial_reduce);
      group.partial_reduce = {};
    }
    if (!config_.all_reduce_every_micro_batch && !last) {
      group.partial_reduce = output;
      group.post_reduce = build_.last(comm_.reduce_scatter);
      unwaited_post_reduce_.push_back(group.post_reduce);
      return;
    }
    all_reduce(group, output);
    post_reduce = comm_.all_reduce;
  }
  to_sharded_gradient(group, output, post_reduce);
  group.post_reduce = build_.last(post_reduce);
  unwaited_post_reduce_.push_back(group.post_reduce);
}

void ParamGroups::reduce_scatter(ParamGroup& group, BufferId input, BufferId output) {
  if (config_.shard == 1) {
    build_.copy({"FSDP::reduce_scatter", group.name}, comm_.reduce_scatter, {.source = input, .target = output, .count = group.padded_trainable});
    return;
  }
  build_.communicate({"FSDP::reduce_scatter", group.name}, comm_.reduce_scatter,
                     {.kind = Collective::reduce_scatter, .communicator = comm_.reduce, .dtype = config_.reduce, .reduction = Reduction::average,
                      .payload = group.padded_trainable, .source = input, .target = output});
}

void ParamGroups::all_reduce(ParamGroup& group, BufferId& output) {
  build_.wait_stream(comm_.all_reduce, comm_.reduce_scatter);
  build_.communicate({"FSDP::all_reduce", group.name}, comm_.all_reduce,
                     {.kind = Collective::all_reduce, .communicator = comm_.replicate, .dtype = config_.reduce, .reduction = Reduction::average,
                      .payload = group.padded_trainable / config_.shard, .target = output});
}

/// The output itself becomes .grad where dtypes agree; else a cast copy does. Later micro-batches add to it.
void ParamGroups::to_sharded_gradient(ParamGroup& group, BufferId output, StreamId stream) {
  const Elements count = group.padded_trainable / config_.shard;
  const bool offload = offloads(program_.training());
  if (!group.sharded_gradient.valid() && config_.reduce == config_.stored && !offload) {
    group.sharded_gradient = output;
    return;
  }
  const bool first = !group.sharded_gradient.valid();
  if (first)
    group.sharded_gradient = build_.allocate({.label = {"sharded .grad", group.name}, .category = Category::gradients, .host = offload, .dtype = config_.stored,
                                              .pool = stream, .layout = rows_layout(group.trainable, true), .elements = count});
  build_.copy({first ? "FSDP::to_orig_dtype" : "FSDP::accumulate_grad", group.name}, stream,
              {.source = output, .target = group.sharded_gradient, .count = count, .path = offload ? CopyPath::to_host : CopyPath::device, .accumulate = !first});
  if (config_.replicate > 1 && config_.reduce != config_.stored && !offload) {
    group.all_reduce_state = output;  // kept until this group's next reduction or the end of backward
  } else {
    build_.free(output);
  }
}

void ParamGroups::wait_for_post_reduce() {
  for (OpId event : unwaited_post_reduce_) build_.wait(default_stream, event);
  unwaited_post_reduce_.clear();
}

void ParamGroups::finish_backward() {
  while (!reduce_scatter_states_.empty()) drop_oldest_reduce_scatter();
  for (const auto& group : groups_) {
    if (group->all_reduce_state.valid()) build_.free(group->all_reduce_state);
    group->all_reduce_state = {};
    group->post_reduce = {};
  }
}

void ParamGroups::step() {
  std::vector<OptimizerStep::Gradients> gradients;
  std::vector<BufferId> buffers;
  for (std::size_t i = 0; i < groups_.size(); ++i) gradients.emplace_back();
  // Targets stand in the order in which groups were added; find each group's by its weights.
  for (const auto& group : groups_) {
    if (!group->sharded_gradient.valid()) continue;
    for (std::size_t t = 0; t < optimizer_.targets().size(); ++t)
      if (optimizer_.targets()[t].weights == group->shard)
        gradients[t] = {{group->sharded_gradient}, {optimizer_.targets()[t].count}};
    buffers.push_back(group->sharded_gradient);
    group->sharded_gradient = {};
  }
  if (offloads(program_.training())) build_.synchronize({"FSDP::offload gradients", {}});
  optimizer_.clip(gradients, comm_.shard, default_stream, config_.stored, false);
  optimizer_.emit(gradients);
  for (BufferId b : buffers) build_.free(b);
}

}  // namespace shardsim
