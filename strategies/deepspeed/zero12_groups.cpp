// SPDX-License-Identifier: Apache-2.0
#include "strategies/deepspeed/zero12_groups.hpp"

#include <algorithm>

#include "strategies/shared/bucketing.hpp"
#include "strategies/shared/sharding.hpp"

namespace shardsim {
namespace {

/// nccl_start_alignment_factor: all-gather sends start at multiples of 4 bytes.
constexpr std::int64_t alignment_factor = 2;
/// split_params_into_different_moe_groups_for_optimizer: elements of a param group of experts.
constexpr std::int64_t max_expert_group = 178'956'971;

/// _round_robin_reorder: tensors 0, N, 2N ... first, then 1, N + 1 ..., so that gradients that arrive one after another have different
/// owners.
std::vector<ParameterId> round_robin_order(const std::vector<ParameterId>& parameters, std::int64_t n) {
  std::vector<ParameterId> order;
  order.reserve(parameters.size());
  const auto step = static_cast<std::size_t>(n);
  for (std::size_t first = 0; first < std::min(step, parameters.size()); ++first)
    for (std::size_t i = first; i < parameters.size(); i += step) order.push_back(parameters[i]);
  return order;
}

}  // namespace

std::vector<std::vector<ParameterId>> optimizer_param_groups(const Model& model, bool split_weight_decay) {
  const std::vector<ParameterId> trainable = parameters_where(model, true);
  if (!split_weight_decay) return {trainable};
  std::vector<std::vector<ParameterId>> groups(2);
  for (ParameterId p : trainable) groups[model.at(p).matrix() ? 0 : 1].push_back(p);
  std::erase_if(groups, [](const auto& group) { return group.empty(); });
  return groups;
}

FlatGroups::FlatGroups(Program& program, const FlatGroupsConfig& config)
    : program_(program),
      config_(config),
      dp_{program.job.world_size, 1, program.build.communicator("dp", "dp", program.job.world_size)},
      place_(program.model().parameters->size()) {
  ScheduleBuilder& build = program_.build;
  const ExpertParallel experts(program_.job);
  std::vector<std::vector<ParameterId>> expert_groups;
  for (const auto& parameters : optimizer_param_groups(program_.model(), program_.training().optimizer.split_weight_decay)) {
    ExpertParallel::Held held = experts.held(parameters);
    if (!held.dense.empty()) add_group(std::move(held.dense), dp_, false);
    if (!held.experts.empty()) expert_groups.push_back(std::move(held.experts));
  }
  add_expert_groups(experts, expert_groups);
  const std::vector<ParameterId> frozen = experts.local(parameters_where(program_.model(), false));
  if (frozen.empty()) return;
  build.buffer({.label = {"frozen parameters", {}},
                .category = Category::parameters,
                .role = Role::parameter,
                .persistent = true,
                .dtype = config_.model,
                .layout = build.layout({.parameters = build.parameters(frozen)}),
                .elements = total_elements(program_.model(), frozen)});
}

/// Param groups of experts follow the others, none larger than DeepSpeed's limit; partitioned over the ranks that hold the same experts.
void FlatGroups::add_expert_groups(const ExpertParallel& experts, const std::vector<std::vector<ParameterId>>& groups) {
  if (groups.empty()) return;
  const RankGroup same = experts.replicas(program_.build, dp_.ranks);
  for (const auto& parameters : groups) {
    std::vector<std::int64_t> sizes;
    for (ParameterId p : parameters) sizes.push_back(program_.model().at(p).elements.value());
    for (const BucketRange& range : flush_before_exceeding(sizes, max_expert_group))
      add_group(
          {parameters.begin() + static_cast<std::ptrdiff_t>(range.begin), parameters.begin() + static_cast<std::ptrdiff_t>(range.end)},
          same, true);
  }
}

void FlatGroups::add_group(std::vector<ParameterId> parameters, const RankGroup& ranks, bool experts) {
  const std::int64_t n = ranks.ranks;
  FlatGroup group;
  group.ranks = ranks;
  group.experts = experts;
  group.name = program_.build.unit("param group " + std::to_string(groups_.size()));
  group.flat_order = config_.round_robin ? round_robin_order(parameters, n) : parameters;
  group.parameters = std::move(parameters);
  const FlatLayout layout = flat_layout(program_.model(), group.flat_order, 1, alignment_factor * n);
  for (std::size_t i = 0; i < group.flat_order.size(); ++i)
    place_[static_cast<std::size_t>(group.flat_order[i].index)] = {groups_.size(), layout.starts[i]};
  group.span = program_.build.parameters(group.flat_order);
  group.flat = layout.elements;
  group.partition = layout.elements / n;
  groups_.push_back(std::move(group));
  declare_buffers(groups_.back());
  count_own_slices(groups_.back());
  add_optimizer(groups_.back());
}

void FlatGroups::declare_buffers(FlatGroup& group) {
  ScheduleBuilder& build = program_.build;
  const auto n = static_cast<std::int32_t>(group.ranks.ranks);
  const Layout whole{.parameters = group.span,
                     .partition = Layout::Partition::flat,
                     .n = n,
                     .stride = static_cast<std::int32_t>(group.ranks.stride),
                     .multiple = static_cast<std::int32_t>(alignment_factor) * n};
  Layout part = whole;
  part.shard = true;
  group.shard = build.layout(part);
  group.bit16 = build.buffer({.label = {"bit16_groups_flat", group.name},
                              .category = Category::parameters,
                              .role = Role::parameter,
                              .persistent = true,
                              .dtype = config_.model,
                              .layout = build.layout(whole),
                              .elements = group.flat});
  group.master = build.buffer({.label = {"single_partition_of_fp32_groups", group.name},
                               .category = Category::optimizer_states,
                               .persistent = true,
                               .host = program_.training().offload.optimizer != OffloadTarget::none,
                               .dtype = config_.master,
                               .layout = group.shard,
                               .elements = group.partition});
}

void FlatGroups::count_own_slices(FlatGroup& group) const {
  Elements own;
  for (ParameterId p : group.flat_order) {
    const Elements length{own_slice(p).length};
    if (length == Elements{}) continue;
    ++group.own_slices;
    own += length;
    group.largest_own_slice = std::max(group.largest_own_slice, length);
  }
  if (own < group.partition) ++group.own_slices;  // get_flat_partition appends zeros
}

/// The optimizer sees one flat tensor a group, except muon, whose update needs the whole matrices that touch the partition.
void FlatGroups::add_optimizer(FlatGroup& group) {
  std::vector<ParameterId> matrices;
  if (program_.training().optimizer.kind == OptimizerKind::muon)
    for (ParameterId p : group.flat_order)
      if (owned(p)) matrices.push_back(p);
  group.optimizer = std::make_unique<OptimizerStep>(program_);
  group.optimizer->has_cpu_kernel();
  group.optimizer->add({.label = {"optimizer", group.name},
                        .parameters = std::move(matrices),
                        .weights = group.master,
                        .layout = group.shard,
                        .count = group.partition,
                        .dtype = config_.master});
}

std::vector<PartitionSlice> FlatGroups::slices(ParameterId p) const {
  const std::int64_t partition = groups_[group_of(p)].partition.value();
  const std::int64_t start = start_of(p), end = start + program_.model().at(p).elements.value();
  std::vector<PartitionSlice> found;
  for (std::int64_t at = start; at < end;) {
    const std::int64_t owner = at / partition;
    const std::int64_t next = std::min(end, (owner + 1) * partition);
    found.push_back({owner, at - start, next - at});
    at = next;
  }
  return found;
}

PartitionSlice FlatGroups::own_slice(ParameterId p) const {
  const std::int64_t partition = groups_[group_of(p)].partition.value();
  const std::int64_t start = start_of(p), end = start + program_.model().at(p).elements.value();
  const std::int64_t own = ranks_of(p).part(program_.job.rank);
  const std::int64_t from = std::max(start, own * partition), to = std::min(end, (own + 1) * partition);
  return {own, from - start, std::max<std::int64_t>(0, to - from)};
}

void FlatGroups::all_gather() {
  for (const FlatGroup& group : groups_) {
    if (group.ranks.ranks == 1) continue;
    program_.build.communicate({"nccl:_all_gather_base", group.name}, ScheduleBuilder::compute_stream(),
                               {.kind = Collective::all_gather,
                                .communicator = group.ranks.communicator,
                                .dtype = config_.model,
                                .payload = group.flat,
                                .target = group.bit16});
  }
}

}  // namespace shardsim
