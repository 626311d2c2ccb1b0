// SPDX-License-Identifier: Apache-2.0
#include "strategies/megatron/megatron_buckets.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "strategies/shared/main_gradients.hpp"
#include "strategies/shared/sharding.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t param_alignment = 64;    // elements: starts of parameters, 128 bytes in bf16
constexpr std::int64_t bucket_alignment = 128;  // elements
constexpr std::int64_t high_busbw_alignment = 1 << 16;

DType gradient_dtype(const Job& job) {
  const Options& options = job.strategy.options;
  if (!options.given("grad_reduce_in_fp32")) return main_gradient_dtype(job);
  return options.boolean("grad_reduce_in_fp32", true) ? DType::fp32 : job.training.precision.parameters;
}

}  // namespace

MegatronConfig megatron_config(const Job& job) {
  const Options& options = job.strategy.options;
  MegatronConfig c;
  c.use_distributed_optimizer = options.boolean("use_distributed_optimizer", c.use_distributed_optimizer);
  c.overlap_grad_reduce = options.boolean("overlap_grad_reduce", c.overlap_grad_reduce);
  c.overlap_param_gather = options.boolean("overlap_param_gather", c.overlap_param_gather);
  c.average_in_collective = options.boolean("average_in_collective", c.average_in_collective);
  c.pad_buckets_for_high_nccl_busbw = options.boolean("pad_buckets_for_high_nccl_busbw", c.pad_buckets_for_high_nccl_busbw);
  c.reduce_scatter_with_fp32_accumulation =
      options.boolean("reduce_scatter_with_fp32_accumulation", c.reduce_scatter_with_fp32_accumulation);
  c.expert_parallel = options.integer("expert_parallel_size", 1);
  c.instances = options.integer("num_distributed_optimizer_instances", 1);
  c.shard = job.world_size / c.instances;
  if (c.overlap_grad_reduce) c.bucket_size = options.integer("bucket_size", std::max<std::int64_t>(40'000'000, 1'000'000 * job.world_size));
  c.parameters = job.training.precision.parameters;
  c.gradients = gradient_dtype(job);
  c.has_master = job.training.precision.master.has_value();
  c.master = job.training.precision.master.value_or(c.parameters);
  return c;
}

std::int64_t bucket_end_multiple(const MegatronConfig& config, std::int64_t shard) {
  if (!config.use_distributed_optimizer) return 1;
  const std::int64_t multiple = std::lcm(shard, bucket_alignment);
  return config.pad_buckets_for_high_nccl_busbw ? std::lcm(multiple, high_busbw_alignment) : multiple;
}

std::vector<std::vector<ParameterId>> megatron_buckets(const Model& model, const MegatronConfig& config, std::vector<ParameterId> order) {
  std::reverse(order.begin(), order.end());
  const std::int64_t align = config.use_distributed_optimizer ? param_alignment : 1;
  std::vector<std::vector<ParameterId>> buckets(1);
  std::int64_t end = 0;  // of the open bucket's last parameter, from the bucket's start
  const auto close = [&] {
    if (buckets.back().empty()) return;
    buckets.emplace_back();
    end = 0;
  };
  for (ParameterId p : order) {
    const bool alone = config.use_distributed_optimizer && std::find(model.tied.begin(), model.tied.end(), p) != model.tied.end();
    if (alone) close();
    buckets.back().push_back(p);
    end = ceil_div(end, align) * align + model.at(p).elements.value();
    if (alone || (config.bucket_size > 0 && end >= config.bucket_size)) close();
  }
  if (buckets.back().empty()) buckets.pop_back();
  return buckets;
}

MegatronBuckets::MegatronBuckets(Program& program, const MegatronConfig& config)
    : program_(program), config_(config), optimizer_(program), bucket_of_(program.model().parameters->size(), -1) {
  ScheduleBuilder& build = program_.build;
  const bool several = config_.instances > 1;
  const ExpertParallel experts(program_.job);
  dense_.intra = {config_.shard, 1,
                  several ? build.communicator("intra-instance", "intra-instance", config_.shard)
                          : build.communicator("dp", "dp", program_.job.world_size)};
  if (several) dense_.inter = build.communicator("inter-instance", "inter-instance", config_.instances, config_.shard);
  ExpertParallel::Held held = experts.held(parameters_where(program_.model(), true));
  add_buffer(std::move(held.dense), dense_);
  if (!held.experts.empty()) {
    add_buffer(std::move(held.experts), {experts.replicas(build, config_.shard), dense_.inter});  // instances are the same ranks for both
  }
  if (const std::vector<ParameterId> frozen = experts.local(parameters_where(program_.model(), false)); !frozen.empty())
    build.buffer({.label = {"frozen parameters", {}},
                  .category = Category::parameters,
                  .role = Role::parameter,
                  .persistent = true,
                  .dtype = config_.parameters,
                  .layout = build.layout({.parameters = build.parameters(frozen)}),
                  .elements = total_elements(program_.model(), frozen)});
}

void MegatronBuckets::add_buffer(std::vector<ParameterId> parameters, const MegatronGroups& groups) {
  std::int32_t before = -1;
  for (auto& in_bucket : megatron_buckets(program_.model(), config_, std::move(parameters))) {
    add_bucket(std::move(in_bucket), groups);
    buckets_.back().next = std::exchange(before, static_cast<std::int32_t>(buckets_.size()) - 1);
  }
}

void MegatronBuckets::add_bucket(std::vector<ParameterId> parameters, const MegatronGroups& groups) {
  MegatronBucket bucket;
  bucket.groups = groups;
  bucket.name = program_.build.unit("bucket " + std::to_string(buckets_.size()));
  for (ParameterId p : parameters) bucket_of_[static_cast<std::size_t>(p.index)] = static_cast<std::int32_t>(buckets_.size());
  bucket.parameters = std::move(parameters);
  buckets_.push_back(std::move(bucket));
  declare_buffers(buckets_.back());
}

/// The library's buckets are views of one buffer; here each has its own, of the same bytes, because padding stands between them.
void MegatronBuckets::declare_buffers(MegatronBucket& bucket) {
  ScheduleBuilder& build = program_.build;
  const std::int64_t align = config_.use_distributed_optimizer ? param_alignment : 1,
                     multiple = bucket_end_multiple(config_, bucket.groups.intra.ranks);
  const FlatLayout flat = flat_layout(program_.model(), bucket.parameters, align, multiple);
  bucket.elements = flat.elements;
  Layout whole{.parameters = build.parameters(bucket.parameters),
               .align = static_cast<std::int32_t>(align),
               .multiple = static_cast<std::int32_t>(multiple)};
  Layout owned = whole;
  if (config_.use_distributed_optimizer) {
    owned.partition = whole.partition = Layout::Partition::flat;
    owned.n = whole.n = static_cast<std::int32_t>(bucket.groups.intra.ranks);
    owned.stride = whole.stride = static_cast<std::int32_t>(bucket.groups.intra.stride);
    owned.shard = true;
  }
  bucket.owned = config_.use_distributed_optimizer ? bucket.elements / bucket.groups.intra.ranks : bucket.elements;
  bucket.owned_layout = build.layout(owned);
  const LayoutId layout = build.layout(whole);
  const auto declare = [&](const char* verb, Category category, Role role, DType dtype, LayoutId held, Elements elements) {
    return build.buffer({.label = {verb, bucket.name},
                         .category = category,
                         .role = role,
                         .persistent = true,
                         .dtype = dtype,
                         .layout = held,
                         .elements = elements});
  };
  bucket.param_data = declare("param_data", Category::parameters, Role::parameter, config_.parameters, layout, bucket.elements);
  bucket.grad_data = declare("grad_data", Category::gradients, Role::none, config_.gradients, layout, bucket.elements);
  if (config_.has_master) {
    bucket.weights = declare("shard_fp32_from_float16_groups", Category::optimizer_states, Role::none, config_.master, bucket.owned_layout,
                             bucket.owned);
  } else {
    Buffer view = build.schedule().at(bucket.param_data);
    view.label.verb = "shard_fp32_groups";
    view.role = Role::none;
    view.layout = bucket.owned_layout;
    view.elements = bucket.owned;
    view.view_of = bucket.param_data;
    view.view_offset = first_owned(bucket);
    bucket.weights = build.buffer(view);
  }
  optimizer_.add({.label = {"optimizer", bucket.name},
                  .parameters = owned_parameters(bucket, flat.starts),
                  .weights = bucket.weights,
                  .layout = bucket.owned_layout,
                  .count = bucket.owned,
                  .dtype = config_.master});
}

Elements MegatronBuckets::first_owned(const MegatronBucket& bucket) const {
  return config_.use_distributed_optimizer ? bucket.groups.intra.part(program_.job.rank) * bucket.owned : Elements{};
}

/// Parameters that reach into this rank's shard: the tensors that its optimizer sees.
std::vector<ParameterId> MegatronBuckets::owned_parameters(const MegatronBucket& bucket, const std::vector<std::int64_t>& starts) const {
  const std::int64_t from = first_owned(bucket).value(), to = from + bucket.owned.value();
  std::vector<ParameterId> owned;
  for (std::size_t i = 0; i < starts.size(); ++i)
    if (starts[i] < to && starts[i] + program_.model().at(bucket.parameters[i]).elements.value() > from)
      owned.push_back(bucket.parameters[i]);
  return owned;
}

}  // namespace shardsim
