// SPDX-License-Identifier: Apache-2.0
#include "strategies/pytorch/fsdp2_groups.hpp"

#include <algorithm>
#include <charconv>

#include "strategies/shared/sharding.hpp"

namespace shardsim {
namespace {

Elements padded_elements(const Model& model, const std::vector<ParameterId>& parameters, std::int64_t n) {
  Elements sum;
  for (ParameterId p : parameters) sum += rows_padded(model.at(p), n);
  return sum;
}

}  // namespace

std::optional<std::int64_t> reshard_size(const std::string& word) {
  if (word == "true") return 1;
  if (word == "false") return 0;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size() || value < 1) return std::nullopt;
  return value == 1 ? 0 : value;  // resharding to one rank is not resharding (_get_post_forward_mesh_info)
}

Fsdp2Config fsdp2_config(const Job& job) {
  const Options& options = job.strategy.options;
  const Precision& precision = job.training.precision;
  Fsdp2Config c;
  c.replicate = options.integer("replicate", 1);
  c.shard = job.world_size / c.replicate;
  c.reshard = reshard_size(options.word("reshard_after_forward", "true")).value_or(1);
  c.reshard_root = options.boolean("reshard_root_after_forward", false);
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
    : program_(program), build_(program.build), config_(config), experts_(program.job), optimizer_(program) {
  comm_.all_gather_copy_in = build_.stream("all_gather_copy_in");
  comm_.all_gather = build_.stream("all_gather");
  comm_.reduce_scatter = build_.stream("reduce_scatter");
  if (config_.replicate > 1) comm_.all_reduce = build_.stream("all_reduce");
  make_communicators();
  make_groups();
}

void ParamGroups::make_communicators() {
  const CommunicatorId shard = build_.communicator("shard", "shard", config_.shard);
  dense_ = {config_.shard, 1, shard,
            config_.separate_reduce_scatter_group ? build_.communicator("shard (reduce-scatter)", "shard", config_.shard) : shard};
  if (experts_.size() > 1) {
    const CommunicatorId expert = build_.communicator("expert shard", "expert shard", config_.shard / experts_.size(), experts_.size());
    expert_mesh_ = {config_.shard / experts_.size(), experts_.size(), expert, expert};
  }
  if (config_.replicate > 1) comm_.replicate = build_.communicator("replicate", "replicate", config_.replicate, config_.shard);
  if (config_.reshard > 1) comm_.reshard = build_.communicator("reshard", "reshard", config_.reshard);
}

void ParamGroups::make_groups() {
  const Model& model = program_.model();
  const auto& layers = *model.layers;
  entered_.assign(layers.size(), nullptr);
  left_.assign(layers.size(), nullptr);
  expert_groups_.assign(layers.size(), nullptr);
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
    if (is_block(l)) add_block(l, take(l, l));
  if (config_.torchtitan_wrapping && model.tied.empty()) {
    std::int32_t first_block = 0, last_block = count - 1;
    while (first_block < count && !is_block(first_block)) ++first_block;
    while (last_block >= 0 && !is_block(last_block)) --last_block;
    if (first_block > 0 && first_block < count) add_group("embedding", 0, first_block - 1, take(0, first_block - 1), dense_);
    if (last_block >= 0 && last_block + 1 < count)
      add_group("norm and head", last_block + 1, count - 1, take(last_block + 1, count - 1), dense_);
  }
  if (std::vector<ParameterId> rest = take(0, count - 1); !rest.empty()) root_ = add_group("root", 0, count - 1, std::move(rest), dense_);
  for (const auto& group : groups_) {
    if (group.get() == root_ || group->mesh.stride > 1) continue;
    entered_[static_cast<std::size_t>(group->first_layer)] = group.get();
    left_[static_cast<std::size_t>(group->last_layer)] = group.get();
  }
  std::stable_sort(groups_.begin(), groups_.end(), [](const auto& a, const auto& b) { return a->first_layer < b->first_layer; });
  if (root_) module_order_.push_back(root_);
  for (const auto& group : groups_)
    if (group.get() != root_) module_order_.push_back(group.get());
}

/// A block is one group; under expert parallelism its routed experts are another, and only the local ones are held at all.
void ParamGroups::add_block(std::int32_t layer, const std::vector<ParameterId>& parameters) {
  const std::string& name = (*program_.model().layers)[static_cast<std::size_t>(layer)].name;
  auto [dense, experts] = experts_.held(parameters);
  expert_groups_[static_cast<std::size_t>(layer)] = add_group(name + ".experts", layer, layer, std::move(experts), expert_mesh_);
  add_group(name, layer, layer, std::move(dense), dense_);
}

LayoutId ParamGroups::rows_layout(const ShardMesh& mesh, const std::vector<ParameterId>& parameters, bool shard, bool unpadded) {
  return build_.layout({.parameters = build_.parameters(parameters),
                        .partition = Layout::Partition::rows,
                        .shard = shard,
                        .unpadded = unpadded,
                        .n = static_cast<std::int32_t>(mesh.ranks),
                        .stride = static_cast<std::int32_t>(mesh.stride)});
}

ParamGroup* ParamGroups::add_group(const std::string& name, std::int32_t first, std::int32_t last, std::vector<ParameterId> parameters,
                                   const ShardMesh& mesh) {
  if (parameters.empty()) return nullptr;
  const Model& model = program_.model();
  auto group = std::make_unique<ParamGroup>();
  group->name = build_.unit(name);
  group->mesh = mesh;
  group->first_layer = first;
  group->last_layer = last;
  group->embedding = name == "embedding";
  group->head = name == "norm and head";
  group->parameters = std::move(parameters);
  for (ParameterId p : group->parameters) {
    group_of_[static_cast<std::size_t>(p.index)] = group.get();
    if (model.at(p).trainable) group->trainable.push_back(p);
  }
  group->gradients.resize(group->trainable.size());
  group->accumulated.resize(group->trainable.size());
  group->padded = padded_elements(model, group->parameters, mesh.ranks);
  group->padded_trainable = padded_elements(model, group->trainable, mesh.ranks);
  group->shard = build_.buffer({.label = {"sharded parameters", group->name},
                                .category = Category::parameters,
                                .persistent = true,
                                .host = offloads_parameters(program_.training()),
                                .dtype = config_.stored,
                                .pool = default_stream,
                                .layout = rows_layout(mesh, group->parameters, true),
                                .elements = group->padded / mesh.ranks});
  Elements owned;
  for (ParameterId p : group->trainable) owned += rows_owned(model.at(p), mesh.ranks, mesh.part(program_.job.rank));
  optimizer_.add({.label = {"optimizer", group->name},
                  .parameters = group->trainable,
                  .weights = group->shard,
                  .layout = rows_layout(mesh, group->trainable, true, true),
                  .count = owned,
                  .dtype = config_.stored});
  if (!group->trainable.empty() && !program_.training().optimizer.set_to_none) {
    group->kept_gradient = build_.buffer(gradient_of(*group));
    if (program_.training().warm) group->sharded_gradient = group->kept_gradient;  // else the first backward makes it
  }
  groups_.push_back(std::move(group));
  return groups_.back().get();
}

ParamGroup* ParamGroups::experts_at(std::int32_t layer, std::int32_t module) {
  const LayerType& type = program_.model().type_of((*program_.model().layers)[static_cast<std::size_t>(layer)]);
  return type.modules[static_cast<std::size_t>(module)].routed_experts ? expert_groups_[static_cast<std::size_t>(layer)] : nullptr;
}
ParamGroup* ParamGroups::entered_at(std::int32_t layer) { return entered_[static_cast<std::size_t>(layer)]; }
ParamGroup* ParamGroups::left_at(std::int32_t layer) { return left_[static_cast<std::size_t>(layer)]; }

ParamGroup* ParamGroups::neighbour(const ParamGroup& group, std::int64_t ahead) {
  std::int64_t seen = -1;
  for (const auto& g : groups_) {
    if (g.get() == root_) continue;
    if (g.get() == &group)
      seen = 0;
    else if (seen >= 0 && ++seen == ahead)
      return g.get();
  }
  return nullptr;
}

BufferId ParamGroups::make(const char* verb, const ParamGroup& group, Category category, DType dtype, StreamId pool, Elements elements,
                           LayoutId layout, Role role) {
  return build_.allocate({.label = {verb, group.name},
                          .category = category,
                          .role = role,
                          .dtype = dtype,
                          .pool = pool,
                          .layout = layout,
                          .elements = elements});
}

void ParamGroups::begin_micro_batch(std::int32_t index) {
  micro_batch_ = index;
  for (const auto& group : groups_) group->post_backward_done = false;
}

// Forward and backward gathers ---------------------------------------------------------------------------------------------------------

void ParamGroups::unshard(ParamGroup& group, Phase phase) {
  if (group.unsharded.valid() || group.gather_pending || group.mesh.ranks == 1) return;
  if (phase == Phase::backward && group.embedding && !config_.unshard_embedding_in_backward) return;
  group.gather_pending = true;
  group.gathered_over_m = group.resharded.valid();
  copy_in_and_all_gather(group);
}

/// foreach_all_gather: cast and copy the shard into its slice of the output, then gather in place.
void ParamGroups::copy_in_and_all_gather(ParamGroup& group) {
  const bool over_m = group.gathered_over_m;
  const std::int64_t n = over_m ? config_.reshard : group.mesh.ranks;
  const Elements full = over_m ? padded_elements(program_.model(), group.parameters, n) : group.padded;
  BufferId cast;
  if (config_.stored != config_.parameters && !over_m)
    cast = make("cast shard", group, Category::communication_buffers, config_.parameters, comm_.all_gather_copy_in, full / n,
                rows_layout(group.mesh, group.parameters, true));
  const LayoutId rows = build_.layout({.parameters = build_.parameters(group.parameters),
                                       .partition = Layout::Partition::rows,
                                       .n = static_cast<std::int32_t>(n),
                                       .stride = static_cast<std::int32_t>(group.mesh.stride)});
  group.all_gather_output =
      make("all-gather output", group, Category::communication_buffers, config_.parameters, comm_.all_gather_copy_in, full, rows);
  build_.copy({"FSDP::all_gather_copy_in", group.name}, comm_.all_gather_copy_in,
              {.source = over_m ? group.resharded : group.shard,
               .target = group.all_gather_output,
               .count = full / n,
               .path = offloads_parameters(program_.training()) && !over_m ? CopyPath::to_device : CopyPath::device});
  build_.wait_stream(comm_.all_gather, comm_.all_gather_copy_in);
  group.all_gathered = build_.communicate({"FSDP::all_gather", group.name}, comm_.all_gather,
                                          {.kind = Collective::all_gather,
                                           .communicator = over_m ? comm_.reshard : group.mesh.gather,
                                           .dtype = config_.parameters,
                                           .payload = full,
                                           .target = group.all_gather_output});
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
  if (group.mesh.ranks > 1 && !group.gather_pending) return;
  if (phase == Phase::forward) drop_all_gather_state();
  const BufferId source = group.mesh.ranks > 1 ? group.all_gather_output : group.shard;
  if (group.mesh.ranks > 1) build_.wait(default_stream, group.all_gathered);
  const Elements count = total_elements(program_.model(), group.parameters);
  const LayoutId whole = build_.layout({.parameters = build_.parameters(group.parameters)});
  group.unsharded = make("unsharded parameters", group, Category::unsharded_parameters, config_.parameters, default_stream,
                         group.mesh.ranks > 1 ? group.padded : count, whole, Role::parameter);
  last_copy_out_ =
      build_.copy({"FSDP::all_gather_copy_out", group.name}, default_stream, {.source = source, .target = group.unsharded, .count = count});
  group.gather_pending = false;
  if (group.mesh.ranks == 1) return;
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
  const bool keep = &group == root_ || group.head ? !config_.reshard_root : config_.reshard == 0;
  if (keep || !group.unsharded.valid()) return;
  if (config_.reshard <= 1 || config_.reshard == config_.shard || group.mesh.stride > 1) return reshard(group);
  const Elements part = padded_elements(program_.model(), group.parameters, config_.reshard) / config_.reshard;
  const LayoutId rows = build_.layout({.parameters = build_.parameters(group.parameters),
                                       .partition = Layout::Partition::rows,
                                       .shard = true,
                                       .n = static_cast<std::int32_t>(config_.reshard)});
  const BufferId resharded =
      make("parameters resharded after forward", group, Category::unsharded_parameters, config_.parameters, default_stream, part, rows);
  const OpId event = build_.copy({"FSDP::reshard_after_forward", group.name}, default_stream,
                                 {.source = group.unsharded, .target = resharded, .count = part});
  reshard(group);
  group.resharded = resharded;
  build_.wait(comm_.all_gather_copy_in, event);
  build_.wait(comm_.all_gather, event);
}

void ParamGroups::finish_forward() { drop_all_gather_state(); }

}  // namespace shardsim
