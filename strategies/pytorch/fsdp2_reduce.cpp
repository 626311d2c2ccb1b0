// SPDX-License-Identifier: Apache-2.0
// FSDP2's gradients: from autograd's to the shard's, and the optimizer step on the shards. Source: _fsdp_param_group.py (post_backward),
// _fsdp_collectives.py (foreach_reduce).
#include <algorithm>

#include "strategies/pytorch/fsdp2_groups.hpp"
#include "strategies/shared/muon.hpp"

namespace shardsim {
// Gradients ------------------------------------------------------------------------------------------------------------------------------

void ParamGroups::produce_gradient(ParameterId parameter) {
  ParamGroup& group = *group_of_[static_cast<std::size_t>(parameter.index)];
  const auto index =
      static_cast<std::size_t>(std::find(group.trainable.begin(), group.trainable.end(), parameter) - group.trainable.begin());
  BufferId& gradient = group.gradients[index];
  if (gradient.valid()) return;  // gradient sync is off and autograd adds to what is there
  gradient =
      make("unsharded .grad", group, Category::unsharded_gradients, group.gradient, default_stream, program_.model().at(parameter).elements,
           build_.layout({.parameters = build_.parameters(std::span(&parameter, 1))}), Role::gradient);
}

void ParamGroups::accumulate_unsharded(ParamGroup& group) {
  for (std::size_t i = 0; i < group.trainable.size(); ++i) {
    if (!group.accumulated[i].valid() || !group.gradients[i].valid()) continue;
    build_.copy({"FSDP::accumulate_unsharded_grad", group.name}, default_stream,
                {.source = group.gradients[i],
                 .target = group.accumulated[i],
                 .count = program_.model().at(group.trainable[i]).elements,
                 .accumulate = true});
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
    if (group.reduce == group.gradient) return;
    for (std::size_t i = 0; i < group.trainable.size(); ++i) {  // to_accumulated_grad_if_needed: unpadded, full size, in reduce dtype
      if (!group.gradients[i].valid()) continue;
      const ParameterId p = group.trainable[i];
      group.accumulated[i] = make("accumulated .grad", group, Category::unsharded_gradients, group.reduce, default_stream,
                                  program_.model().at(p).elements, build_.layout({.parameters = build_.parameters(std::span(&p, 1))}));
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

/// One padded input of all gradients, which are dropped.
BufferId ParamGroups::chunk_cat(ParamGroup& group) {
  const BufferId input = make("reduce-scatter input", group, Category::communication_buffers, group.reduce, default_stream,
                              group.padded_trainable, rows_layout(group.mesh, group.trainable, false));
  std::int32_t kernels = 1;  // chunk_cat is one kernel over all gradients
  for (std::size_t i = 0; i < group.trainable.size(); ++i) {
    const BufferId gradient = group.accumulated[i].valid() ? group.accumulated[i] : group.gradients[i];
    if (!gradient.valid()) continue;
    build_.copy({"FSDP::chunk_cat", group.name}, default_stream,
                {.source = gradient,
                 .target = input,
                 .count = program_.model().at(group.trainable[i]).elements,
                 .kernels = std::exchange(kernels, 0)});
  }
  for (std::size_t i = 0; i < group.trainable.size(); ++i)
    for (BufferId* gradient : {&group.accumulated[i], &group.gradients[i]})
      if (gradient->valid()) {
        build_.free(*gradient);
        *gradient = {};
      }
  return input;
}

/// foreach_reduce: chunk_cat, reduce-scatter, all-reduce over replicas, cast, and accumulate into the shard's .grad.
void ParamGroups::reduce(ParamGroup& group) {
  while (static_cast<std::int64_t>(reduce_scatter_states_.size()) >= config_.max_input_buffers) drop_oldest_reduce_scatter();
  if (group.post_reduce.valid()) build_.wait(default_stream, group.post_reduce);
  if (group.all_reduce_state.valid()) {
    build_.free(group.all_reduce_state);
    group.all_reduce_state = {};
  }
  const BufferId input = chunk_cat(group);
  build_.wait_stream(comm_.reduce_scatter, default_stream);
  const bool becomes_gradient =
      group.reduce == group.stored && !group.sharded_gradient.valid() && !offloads_parameters(program_.training());
  BufferId output = group.kept_gradient;
  if (becomes_gradient && output.valid() && !all_reduces_later())
    build_.allocate(output);
  else
    output = make("reduce-scatter output", group, becomes_gradient ? Category::gradients : Category::communication_buffers, group.reduce,
                  comm_.reduce_scatter, group.padded_trainable / group.mesh.ranks, rows_layout(group.mesh, group.trainable, true));
  reduce_scatter(group, input, output);
  reduce_scatter_states_.push_back({input, build_.last(comm_.reduce_scatter)});
  StreamId post_reduce = comm_.reduce_scatter;
  if (config_.replicate > 1) {
    if (keep_partial(group, output)) return;
    all_reduce(group, output);
    post_reduce = comm_.all_reduce;
  }
  to_sharded_gradient(group, output, post_reduce);
  group.post_reduce = build_.last(post_reduce);
  unwaited_post_reduce_.push_back(group.post_reduce);
}

bool ParamGroups::all_reduces_later() const {
  return config_.replicate > 1 && !config_.all_reduce_every_micro_batch && micro_batch_ + 1 < program_.micro_batches();
}

/// HSDP with set_requires_all_reduce(False): the reduce-scattered shard waits, in reduce dtype, for the micro-batch that all-reduces.
bool ParamGroups::keep_partial(ParamGroup& group, BufferId output) {
  if (group.partial_reduce.valid()) {
    build_.copy({"FSDP::accumulate_partial_reduce", group.name}, comm_.reduce_scatter,
                {.source = group.partial_reduce, .target = output, .count = group.padded_trainable / group.mesh.ranks, .accumulate = true});
    build_.free(group.partial_reduce);
    group.partial_reduce = {};
  }
  if (!all_reduces_later()) return false;
  group.partial_reduce = output;
  group.post_reduce = build_.last(comm_.reduce_scatter);
  unwaited_post_reduce_.push_back(group.post_reduce);
  return true;
}

void ParamGroups::reduce_scatter(ParamGroup& group, BufferId input, BufferId output) {
  if (group.mesh.ranks == 1) {
    build_.copy({"FSDP::reduce_scatter", group.name}, comm_.reduce_scatter,
                {.source = input, .target = output, .count = group.padded_trainable});
    return;
  }
  build_.communicate({"FSDP::reduce_scatter", group.name}, comm_.reduce_scatter,
                     {.kind = Collective::reduce_scatter,
                      .communicator = group.mesh.reduce,
                      .dtype = group.reduce,
                      .reduction = Reduction::average,
                      .payload = group.padded_trainable,
                      .source = input,
                      .target = output});
}

void ParamGroups::all_reduce(ParamGroup& group, BufferId& output) {
  build_.wait_stream(comm_.all_reduce, comm_.reduce_scatter);
  build_.communicate({"FSDP::all_reduce", group.name}, comm_.all_reduce,
                     {.kind = Collective::all_reduce,
                      .communicator = comm_.replicate,
                      .dtype = group.reduce,
                      .reduction = Reduction::average,
                      .payload = group.padded_trainable / group.mesh.ranks,
                      .target = output});
}

Buffer ParamGroups::gradient_of(const ParamGroup& group) {
  return {.label = {"sharded .grad", group.name},
          .category = Category::gradients,
          .persistent = !program_.training().optimizer.set_to_none,
          .host = offloads_parameters(program_.training()),
          .dtype = group.stored,
          .pool = config_.replicate > 1 ? comm_.all_reduce : comm_.reduce_scatter,
          .layout = rows_layout(group.mesh, group.trainable, true),
          .elements = group.padded_trainable / group.mesh.ranks};
}

/// The output itself becomes .grad where dtypes agree; else a cast copy does. Later micro-batches add to it.
void ParamGroups::to_sharded_gradient(ParamGroup& group, BufferId output, StreamId stream) {
  const Elements count = group.padded_trainable / group.mesh.ranks;
  const bool offload = offloads_parameters(program_.training());
  if (!group.sharded_gradient.valid() && group.reduce == group.stored && !offload) {
    group.sharded_gradient = output;
    return;
  }
  const bool first = !group.sharded_gradient.valid();
  if (first) {
    group.sharded_gradient = group.kept_gradient.valid() ? group.kept_gradient : build_.buffer(gradient_of(group));
    build_.allocate(group.sharded_gradient);
  }
  build_.copy({first ? "FSDP::to_orig_dtype" : "FSDP::accumulate_grad", group.name}, stream,
              {.source = output,
               .target = group.sharded_gradient,
               .count = count,
               .path = offload ? CopyPath::to_host : CopyPath::device,
               .accumulate = !first});
  if (config_.replicate > 1 && group.reduce != group.stored && !offload) {
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

/// Muon needs whole matrices; routed experts are sharded over a mesh of their own.
void ParamGroups::orthogonalize_updates() {
  const std::vector<bool> chosen = orthogonalized_parameters(program_.model());
  for (const ShardMesh& mesh : {dense_, expert_mesh_}) {
    std::vector<ParameterId> matrices;
    for (const auto& group : groups_)
      for (ParameterId p : group->trainable)
        if (group->mesh.gather == mesh.gather && chosen[static_cast<std::size_t>(p.index)]) matrices.push_back(p);
    dion_updates(program_, matrices, {.communicator = mesh.gather, .ranks = mesh.ranks, .sharded = mesh.ranks > 1});
  }
  optimizer_.updates_are_orthogonal();
}

void ParamGroups::step() {
  std::vector<OptimizerStep::Gradients> gradients;
  std::vector<BufferId> buffers;
  for (std::size_t i = 0; i < groups_.size(); ++i) gradients.emplace_back();
  // Targets stand in the order in which groups were added; find each group's by its weights.
  for (const auto& group : groups_) {
    if (!group->sharded_gradient.valid()) continue;
    for (std::size_t t = 0; t < optimizer_.targets().size(); ++t)
      if (optimizer_.targets()[t].weights == group->weights()) gradients[t] = {{group->sharded_gradient}, {optimizer_.targets()[t].count}};
    buffers.push_back(group->sharded_gradient);
    group->sharded_gradient = {};
  }
  if (offloads_parameters(program_.training())) build_.synchronize({"FSDP::offload gradients", {}});
  optimizer_.unscale(gradients, dense_.gather, config_.stored);
  std::int64_t tensors = 0;
  for (const auto& group : groups_) tensors += static_cast<std::int64_t>(group->trainable.size());
  optimizer_.clip(gradients, dense_.gather, default_stream, config_.stored, false, Elements{tensors});
  if (runs_dion(program_.job)) orthogonalize_updates();
  optimizer_.emit(gradients);
  zero_grad(program_, buffers);
}

}  // namespace shardsim
