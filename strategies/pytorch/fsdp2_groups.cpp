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

/// MixedPrecisionPolicy(reduce_dtype=None): since 2.15 the dtype of the stored parameters, before that param_dtype.
DType fsdp2_reduction_dtype(const Job& job) {
  const Precision& precision = job.training.precision;
  if (const auto word = dtype_from(job.strategy.options.word("reduce_dtype", ""))) return *word;
  const DType original = precision.master.value_or(precision.parameters);
  return precision.reduce.value_or(since(job, "2.15") ? original : precision.parameters);
}

Fsdp2Config fsdp2_config(const Job& job) {
  const Options& options = job.strategy.options;
  const Precision& precision = job.training.precision;
  Fsdp2Config c;
  c.replicate = options.integer("replicate", 1);
  c.shard = job.world_size / c.replicate;
  c.reshard = reshard_size(options.word("reshard_after_forward", "true")).value_or(1);
  c.reshard_root = options.boolean("reshard_root_after_forward", false);
  const auto groups = static_cast<std::int64_t>(job.model->layers->size()) + 1;  // further ahead there is nothing
  c.forward_prefetch = std::min(options.integer("forward_prefetch", 0), groups);
  c.backward_prefetch = std::min(options.integer("backward_prefetch", 1), groups);
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
  c.reduce = fsdp2_reduction_dtype(job);
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
  output_needs_gradient_ = layers_that_need_backward(model);
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

/// to_sharded_post_forward cuts the buffer that the whole shard group gathered, with its padding, in as many parts as ranks reshard.
LayoutId ParamGroups::resharded_layout(const ParamGroup& group, const GroupPart& part, bool shard) {
  return build_.layout({.parameters = build_.parameters(part.parameters),
                        .partition = Layout::Partition::rows,
                        .shard = shard,
                        .n = static_cast<std::int32_t>(config_.reshard),
                        .padded_for = static_cast<std::int32_t>(group.mesh.ranks)});
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
  for (ParameterId p : parameters) {
    group_of_[static_cast<std::size_t>(p.index)] = group.get();
    if (model.at(p).trainable) group->trainable.push_back(p);
  }
  group->gradients.resize(group->trainable.size());
  group->accumulated.resize(group->trainable.size());
  group->padded_trainable = padded_elements(model, group->trainable, mesh.ranks);
  add_parts(*group, parameters);
  Elements owned;
  for (ParameterId p : group->trainable) owned += rows_owned(model.at(p), mesh.ranks, mesh.part(program_.job.rank));
  optimizer_.add({.label = {"optimizer", group->name},
                  .parameters = group->trainable,
                  .weights = group->weights(),
                  .layout = rows_layout(mesh, group->trainable, true, true),
                  .count = owned,
                  .dtype = group->stored});
  if (!group->trainable.empty() && !program_.training().optimizer.set_to_none) {
    group->kept_gradient = build_.buffer(gradient_of(*group));
    if (program_.training().warm) group->sharded_gradient = group->kept_gradient;  // else the first backward makes it
  }
  groups_.push_back(std::move(group));
  return groups_.back().get();
}

/// Adapters in a dtype of their own are a part of their own, unless a MixedPrecisionPolicy casts all parameters alike.
void ParamGroups::add_parts(ParamGroup& group, const std::vector<ParameterId>& parameters) {
  const Model& model = program_.model();
  const bool casts = config_.stored != config_.parameters;
  const auto own = [&](ParameterId p) { return casts ? std::nullopt : model.at(p).dtype; };
  GroupPart base;
  base.stored = config_.stored;
  base.gathered = config_.parameters;
  GroupPart adapters = base;
  for (ParameterId p : parameters) {
    const DType dtype = own(p).value_or(config_.parameters);
    GroupPart& part = dtype == config_.parameters ? base : adapters;
    if (&part == &adapters) part.stored = part.gathered = dtype;
    part.parameters.push_back(p);
  }
  for (GroupPart* part : {&base, &adapters}) {
    if (part->parameters.empty()) continue;
    part->padded = padded_elements(model, part->parameters, group.mesh.ranks);
    part->shard = build_.buffer({.label = {"sharded parameters", group.name},
                                 .category = Category::parameters,
                                 .persistent = true,
                                 .host = offloads_parameters(program_.training()),
                                 .dtype = part->stored,
                                 .pool = default_stream,
                                 .layout = rows_layout(group.mesh, part->parameters, true),
                                 .elements = part->padded / group.mesh.ranks});
    group.parts.push_back(std::move(*part));
  }
  const bool mixed = group.parts.back().stored != config_.stored;
  group.stored = group.parts.back().stored;
  group.gradient = mixed ? group.stored : config_.gradients;
  group.reduce = mixed ? group.stored : config_.reduce;
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
  if (group.unsharded() || group.gather_pending || group.mesh.ranks == 1) return;
  if (phase == Phase::backward && group.embedding && !config_.unshard_embedding_in_backward) return;
  group.gather_pending = true;
  group.gathered_over_m = group.parts.front().resharded.valid();
  copy_in_and_all_gather(group);
}

/// The shards in the dtype that is gathered, alive while they are copied in.
std::vector<BufferId> ParamGroups::cast_shards(const ParamGroup& group) {
  std::vector<BufferId> casts;
  for (const GroupPart& part : group.parts)
    if (part.stored != part.gathered)
      casts.push_back(make("cast shard", group, Category::communication_buffers, part.gathered, comm_.all_gather_copy_in,
                           part.padded / group.mesh.ranks, rows_layout(group.mesh, part.parameters, true)));
  return casts;
}

/// foreach_all_gather: cast and copy the shard into its slice of the output, then gather in place. Parts of several dtypes are bytes.
void ParamGroups::copy_in_and_all_gather(ParamGroup& group) {
  const bool over_m = group.gathered_over_m, bytewise = group.parts.size() > 1;
  const std::int64_t n = over_m ? config_.reshard : group.mesh.ranks;
  const std::vector<BufferId> casts = over_m ? std::vector<BufferId>{} : cast_shards(group);
  const GroupPart& first = group.parts.front();
  Elements full = first.padded;
  LayoutId rows = over_m ? resharded_layout(group, first, false) : rows_layout(group.mesh, first.parameters, false);
  if (bytewise) {
    Bytes size;
    for (const GroupPart& part : group.parts) size += bytes(part.padded, part.gathered);
    full = Elements{size.value()};
    rows = {};
  }
  const DType dtype = bytewise ? DType::int8 : first.gathered;
  group.all_gather_output = make("all-gather output", group, Category::communication_buffers, dtype, comm_.all_gather_copy_in, full, rows);
  for (const GroupPart& part : group.parts)
    build_.copy({"FSDP::all_gather_copy_in", group.name}, comm_.all_gather_copy_in,
                {.source = over_m ? part.resharded : part.shard,
                 .target = group.all_gather_output,
                 .count = part.padded / n,
                 .path = offloads_parameters(program_.training()) && !over_m ? CopyPath::to_device : CopyPath::device});
  build_.wait_stream(comm_.all_gather, comm_.all_gather_copy_in);
  group.all_gathered = build_.communicate({"FSDP::all_gather", group.name}, comm_.all_gather,
                                          {.kind = Collective::all_gather,
                                           .communicator = over_m ? comm_.reshard : group.mesh.gather,
                                           .dtype = dtype,
                                           .payload = full,
                                           .target = group.all_gather_output});
  for (BufferId cast : casts) build_.free(cast);
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
  if (group.unsharded()) return;
  if (group.mesh.ranks > 1 && !group.gather_pending) return;
  if (phase == Phase::forward) drop_all_gather_state();
  if (group.mesh.ranks > 1) build_.wait(default_stream, group.all_gathered);
  for (GroupPart& part : group.parts) {
    const Elements count = total_elements(program_.model(), part.parameters);
    const LayoutId whole = build_.layout({.parameters = build_.parameters(part.parameters)});
    part.unsharded = make("unsharded parameters", group, Category::unsharded_parameters, part.gathered, default_stream,
                          group.mesh.ranks > 1 ? part.padded : count, whole, Role::parameter);
    last_copy_out_ =
        build_.copy({"FSDP::all_gather_copy_out", group.name}, default_stream,
                    {.source = group.mesh.ranks > 1 ? group.all_gather_output : part.shard, .target = part.unsharded, .count = count});
  }
  group.gather_pending = false;
  if (group.mesh.ranks == 1) return;
  all_gather_state_ = &group;
  if (phase == Phase::backward) drop_all_gather_state();  // freed at once: the next all-gather was issued already
}

void ParamGroups::reshard(ParamGroup& group) {
  if (!group.unsharded()) return;
  for (GroupPart& part : group.parts)
    for (BufferId* buffer : {&part.unsharded, &part.resharded})
      if (buffer->valid()) {
        build_.free(*buffer);
        *buffer = {};
      }
}

void ParamGroups::reshard_after_forward(ParamGroup& group) {
  const bool keep = &group == root_ || group.head ? !config_.reshard_root : config_.reshard == 0;
  if (keep || !group.unsharded()) return;
  if (config_.reshard <= 1 || config_.reshard == config_.shard || group.mesh.stride > 1) return reshard(group);
  OpId event;
  std::vector<BufferId> kept;
  for (const GroupPart& part : group.parts) {
    const Elements share = part.padded / config_.reshard;
    kept.push_back(make("parameters resharded after forward", group, Category::unsharded_parameters, part.gathered, default_stream, share,
                        resharded_layout(group, part, true)));
    event = build_.copy({"FSDP::reshard_after_forward", group.name}, default_stream,
                        {.source = part.unsharded, .target = kept.back(), .count = share});
  }
  reshard(group);
  for (std::size_t i = 0; i < kept.size(); ++i) group.parts[i].resharded = kept[i];
  build_.wait(comm_.all_gather_copy_in, event);
  build_.wait(comm_.all_gather, event);
}

void ParamGroups::finish_forward() { drop_all_gather_state(); }

}  // namespace shardsim
