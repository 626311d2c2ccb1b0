// SPDX-License-Identifier: Apache-2.0
// Megatron-Core's DistributedDataParallel with the distributed optimizer: gradients add up in a main gradient buffer (fp32 for bf16
// models), are reduce-scattered in place bucket by bucket in the last micro-batch, and the updated parameters are all-gathered in place.
// Source: Megatron-LM core/distributed/{distributed_data_parallel,param_and_grad_buffer}.py, core/optimizer/distrib_optimizer.py.
#include <limits>

#include "strategies/megatron/megatron_buckets.hpp"
#include "strategies/shared/expert_parallel.hpp"
#include "strategies/shared/main_gradients.hpp"
#include "strategies/strategy_table.hpp"

namespace shardsim {
namespace {

class Megatron final : public Hooks {
 public:
  explicit Megatron(Program& program)
      : program_(program),
        build_(program.build),
        config_(megatron_config(program.job)),
        buckets_(program, config_),
        process_group_(build_.stream("process group")),
        gradients_(program) {
    if (config_.instances > 1) communication_stream_ = build_.stream("communication_stream");
  }

  void begin_forward(std::int32_t micro_batch) override {
    last_micro_batch_ = micro_batch + 1 == program_.micro_batches();
    first_micro_batch_ = micro_batch == 0;
    for (MegatronBucket& bucket : buckets_.all()) bucket.pending = bucket.parameters.size();
    if (!first_micro_batch_) return;
    for (const MegatronBucket& bucket : buckets_.all())
      build_.copy({"zero_grad_buffer", bucket.name}, current_stream, {.target = bucket.grad_data, .count = bucket.elements});
  }

  /// Under overlap_param_gather the parameters that the last step updated are gathered here, bucket by bucket, from the last: the buckets
  /// stand in reverse order. A job's first iteration gathers nothing.
  void pre_module_forward(std::int32_t layer, std::int32_t module, Pass pass) override {
    if (!config_.overlap_param_gather || !first_micro_batch_ || pass != Pass::forward || !program_.training().warm) return;
    const Layer& l = (*program_.model().layers)[static_cast<std::size_t>(layer)];
    for (std::int32_t index : program_.model().type_of(l).modules[static_cast<std::size_t>(module)].parameters)
      if (const std::int32_t bucket = buckets_.index_of(l.parameters[static_cast<std::size_t>(index)]); bucket >= 0)
        finish_param_sync(bucket);
  }

  void produce_gradient(ParameterId p) override { gradients_.produce(p); }

  /// The hook after gradient accumulation; in the last micro-batch register_grad_ready.
  void gradient_ready(ParameterId p) override {
    build_.call(HostCall::megatron_gradient);
    MegatronBucket& bucket = bucket_of(p);
    gradients_.add_to(bucket.grad_data, p);
    // The first batch counts which gradients come: nothing overlaps yet.
    if (--bucket.pending == 0 && last_micro_batch_ && config_.overlap_grad_reduce && program_.training().warm) start_grad_sync(bucket);
  }

  /// finish_grad_sync.
  void end_backward() override {
    if (!last_micro_batch_) return;
    for (MegatronBucket& bucket : buckets_.all())
      if (!bucket.grad_reduce_handle.valid()) start_grad_sync(bucket);
    for (MegatronBucket& bucket : buckets_.all()) {
      build_.wait(current_stream, bucket.grad_reduce_handle);
      if (bucket.received.valid()) accumulate_in_fp32(bucket, current_stream);
    }
  }

  void step() override {
    if (config_.parameters == DType::fp16) all_reduce_found_inf();
    const std::vector<OptimizerStep::Gradients> gradients = copy_model_grads_to_main_grads();
    buckets_.optimizer().clip(gradients, config_.use_distributed_optimizer ? buckets_.group() : CommunicatorId{}, current_stream,
                              config_.master, true);
    buckets_.optimizer().emit(gradients);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].buffers.front() != buckets_.all()[i].grad_data) build_.free(gradients[i].buffers.front());
    for (const MegatronBucket& bucket : buckets_.all())
      if (config_.has_master)
        build_.copy({"copy_main_params_to_model_params", bucket.name}, current_stream,
                    {.source = bucket.weights, .target = bucket.param_data, .count = bucket.owned});
    if (!config_.use_distributed_optimizer || config_.overlap_param_gather) return;
    for (MegatronBucket& bucket : buckets_.all()) {
      start_param_sync(bucket);
      build_.wait(current_stream, bucket.param_gather_handle);
    }
  }

 private:
  [[nodiscard]] MegatronBucket& bucket_of(ParameterId p) { return buckets_.all()[static_cast<std::size_t>(buckets_.index_of(p))]; }

  /// Scales by 1 / N unless the collective averages; then reduces in place: a rank's shard is a view of the bucket.
  void start_grad_sync(MegatronBucket& bucket) {
    const bool several = config_.instances > 1;
    if (const double factor = gradient_scaling_factor(bucket); factor != 1)
      build_.copy({"grad_data *= scaling factor", bucket.name}, current_stream,
                  {.source = bucket.grad_data, .target = bucket.grad_data, .count = bucket.elements, .scale = factor});
    const StreamId stream = several ? communication_stream_ : process_group_;
    build_.wait_stream(stream, current_stream);
    if (config_.reduce_scatter_with_fp32_accumulation) return start_all_to_all(bucket, stream);
    Communicate reduce{.kind = Collective::all_reduce,
                       .communicator = bucket.groups.intra.communicator,
                       .dtype = config_.gradients,
                       .reduction = config_.average_in_collective ? Reduction::average : Reduction::sum,
                       .payload = bucket.elements,
                       .target = bucket.grad_data};
    if (config_.use_distributed_optimizer) {
      reduce.kind = Collective::reduce_scatter;
      reduce.source = bucket.grad_data;
      reduce.target = {};
    }
    bucket.grad_reduce_handle = build_.communicate(
        {config_.use_distributed_optimizer ? "nccl:_reduce_scatter_base" : "nccl:all_reduce", bucket.name}, stream, reduce);
    if (several) all_reduce_shard(bucket, reduce.reduction);
  }

  /// Gradients of split experts sum the tokens of their expert group already: a collective that averages over their replicas leaves
  /// replicas / N to be applied before it.
  [[nodiscard]] double gradient_scaling_factor(const MegatronBucket& bucket) const {
    const auto world = static_cast<double>(program_.job.world_size);
    if (!config_.average_in_collective) return 1 / world;
    return static_cast<double>(bucket.groups.intra.ranks * config_.instances) / world;
  }

  /// Values travel in their own dtype and meet in a second tensor as large as the bucket. Source: reduce_scatter_with_fp32_accumulation.py.
  void start_all_to_all(MegatronBucket& bucket, StreamId stream) {
    bucket.received = build_.allocate({.label = {"all_to_all_output_tensor", bucket.name},
                                       .category = Category::communication_buffers,
                                       .dtype = config_.gradients,
                                       .pool = current_stream,
                                       .layout = build_.schedule().at(bucket.grad_data).layout,
                                       .elements = bucket.elements});
    bucket.grad_reduce_handle = build_.communicate({"nccl:all_to_all", bucket.name}, stream,
                                                   {.kind = Collective::all_to_all,
                                                    .communicator = bucket.groups.intra.communicator,
                                                    .dtype = config_.gradients,
                                                    .payload = bucket.elements,
                                                    .source = bucket.grad_data,
                                                    .target = bucket.received});
    if (config_.instances == 1) return;  // the handle is waited for when backward has ended
    accumulate_in_fp32(bucket, stream);
    all_reduce_shard(bucket, Reduction::sum);
  }

  /// The handle's wait(): an fp32 sum of what every rank sent, cast back into this rank's shard of the bucket.
  void accumulate_in_fp32(MegatronBucket& bucket, StreamId stream) {
    const BufferId sum = build_.allocate({.label = {"output_tensor_in_fp32", bucket.name},
                                          .category = Category::temporaries,
                                          .dtype = DType::fp32,
                                          .pool = stream,
                                          .layout = bucket.owned_layout,
                                          .elements = bucket.owned});
    build_.copy({"torch.sum", bucket.name}, stream, {.source = bucket.received, .target = sum, .count = bucket.elements});
    build_.copy({"output_tensor.copy_", bucket.name}, stream, {.source = sum, .target = bucket.grad_data, .count = bucket.owned});
    build_.free(sum);
    build_.free(bucket.received);
    bucket.received = {};
  }

  /// Several optimizer instances: the reduced shards are summed across them, in place.
  void all_reduce_shard(MegatronBucket& bucket, Reduction reduction) {
    bucket.grad_reduce_handle = build_.communicate({"nccl:all_reduce", bucket.name}, communication_stream_,
                                                   {.kind = Collective::all_reduce,
                                                    .communicator = bucket.groups.inter,
                                                    .dtype = config_.gradients,
                                                    .reduction = reduction,
                                                    .payload = bucket.owned,
                                                    .target = bucket.grad_data,
                                                    .offset = buckets_.first_owned(bucket)});
  }

  void start_param_sync(MegatronBucket& bucket) {
    build_.wait_stream(process_group_, current_stream);
    bucket.param_gather_handle = build_.communicate({"nccl:_all_gather_base", bucket.name}, process_group_,
                                                    {.kind = Collective::all_gather,
                                                     .communicator = bucket.groups.intra.communicator,
                                                     .dtype = config_.parameters,
                                                     .payload = bucket.elements,
                                                     .target = bucket.param_data});
    bucket.param_gather_dispatched = true;
  }

  /// Waits for a bucket's gather, dispatched now if nobody has, and dispatches the next one.
  void finish_param_sync(std::int32_t index) {
    MegatronBucket& bucket = buckets_.all()[static_cast<std::size_t>(index)];
    if (!bucket.param_gather_dispatched) start_param_sync(bucket);
    if (!bucket.param_gather_handle.valid()) return;
    build_.wait(current_stream, bucket.param_gather_handle);
    bucket.param_gather_handle = {};
    if (bucket.next < 0) return;
    if (MegatronBucket& next = buckets_.all()[static_cast<std::size_t>(bucket.next)]; !next.param_gather_dispatched) start_param_sync(next);
  }

  /// fp32 gradients are used where they are; others are cast, shard by shard.
  [[nodiscard]] std::vector<OptimizerStep::Gradients> copy_model_grads_to_main_grads() {
    std::vector<OptimizerStep::Gradients> all;
    for (const MegatronBucket& bucket : buckets_.all()) {
      BufferId gradient = bucket.grad_data;
      if (config_.gradients != config_.master && config_.has_master) {
        gradient = build_.allocate({.label = {"shard_main_param.grad", bucket.name},
                                    .category = Category::gradients,
                                    .dtype = config_.master,
                                    .pool = current_stream,
                                    .layout = bucket.owned_layout,
                                    .elements = bucket.owned});
        build_.copy({"copy_model_grads_to_main_grads", bucket.name}, current_stream,
                    {.source = bucket.grad_data, .target = gradient, .count = bucket.owned});
      }
      all.push_back({{gradient}, {bucket.owned}});
    }
    return all;
  }

  /// fp16: one flag for inf or nan, largest over all ranks, read by the host.
  void all_reduce_found_inf() {
    const BufferId flag = build_.allocate({.label = {"found_inf", {}},
                                           .category = Category::temporaries,
                                           .dtype = DType::fp32,
                                           .pool = current_stream,
                                           .elements = Elements{1}});
    const OpId op = build_.communicate({"found_inf", {}}, current_stream,
                                       {.kind = Collective::all_reduce,
                                        .communicator = buckets_.group(),
                                        .dtype = DType::fp32,
                                        .reduction = Reduction::max,
                                        .control = true,
                                        .payload = Elements{1},
                                        .target = flag});
    build_.host_wait({"found_inf.item", {}}, op);
    build_.free(flag);
  }

  Program& program_;
  ScheduleBuilder& build_;
  MegatronConfig config_;
  MegatronBuckets buckets_;
  StreamId process_group_, communication_stream_;
  MainGradients gradients_;
  bool first_micro_batch_ = true, last_micro_batch_ = true;
};

void check_fp32_accumulation(const Job& job, const MegatronConfig& c, Problems& problems) {
  if (!c.reduce_scatter_with_fp32_accumulation) return;
  const char* name = "reduce_scatter_with_fp32_accumulation";
  const Where where = job.strategy.options.where(name);
  if (!c.use_distributed_optimizer) problems.add(where, std::string(name) + " needs use_distributed_optimizer");
  if (c.average_in_collective) problems.add(where, std::string(name) + " cannot average in the collective: it supports sums only");
}

void check_megatron(const Job& job, Problems& problems) {
  const Options& options = job.strategy.options;
  const MegatronConfig c = megatron_config(job);
  if (job.world_size % c.instances != 0) {
    return problems.add(options.where("num_distributed_optimizer_instances"),
                        "num_distributed_optimizer_instances: " + std::to_string(c.instances) + " does not divide the world of " +
                            std::to_string(job.world_size) + " ranks");
  }
  if (!c.use_distributed_optimizer)
    for (const char* option : {"overlap_param_gather", "pad_buckets_for_high_nccl_busbw"})
      if (options.boolean(option, false)) problems.add(options.where(option), std::string(option) + " needs use_distributed_optimizer");
  check_expert_parallel(job, c.shard, problems);
  check_fp32_accumulation(job, c, problems);
  if (c.instances > 1 && !c.use_distributed_optimizer)
    problems.add(options.where("num_distributed_optimizer_instances"),
                 "num_distributed_optimizer_instances needs use_distributed_optimizer");
  if (c.overlap_param_gather && !c.overlap_grad_reduce)
    problems.add(options.where("overlap_param_gather"), "overlap_param_gather needs overlap_grad_reduce");
  if (job.training.offload.optimizer != OffloadTarget::none || job.training.offload.parameters != OffloadTarget::none)
    problems.add({}, "megatron: offload is not supported", {"use offload: none, or strategy zero2 or zero3"});
  if (bucket_end_multiple(c, c.shard) > std::numeric_limits<std::int32_t>::max())
    problems.add({}, "megatron: buckets would be padded to multiples of " + std::to_string(bucket_end_multiple(c, c.shard)) + " elements",
                 {"use a world size with more factors of 2"});
}

std::string megatron_differs(const Job& job) {
  const MegatronConfig c = megatron_config(job);
  if (!c.use_distributed_optimizer) return "without the distributed optimizer gradients are all-reduced and nothing is sharded";
  if (c.reduce_scatter_with_fp32_accumulation) return "gradients are exchanged by all-to-all and summed in fp32; buckets are padded";
  if (c.instances > 1) return "shards are all-reduced across the optimizer instances";
  if (c.gradients != job.training.precision.gradients)
    return "Megatron reduce-scatters its fp32 gradient buffer where the paper counts gradients in the model's dtype";
  return {};
}

std::vector<std::string> megatron_without_effect(const Job& job) {
  const Options& options = job.strategy.options;
  const MegatronConfig c = megatron_config(job);
  std::vector<std::string> warnings;
  if (options.given("bucket_size") && !c.overlap_grad_reduce)
    warnings.push_back("megatron: bucket_size has no effect: without overlap_grad_reduce there is one bucket");
  if (job.training.precision.reduce && *job.training.precision.reduce != c.gradients)
    warnings.push_back("megatron: the reduction's dtype has no effect: the gradient buffer is reduced as it is");
  warn_expert_parallel(job, warnings);
  if (job.strategy.options.given("average_in_collective") && job.world_size == 1)
    warnings.push_back("megatron: average_in_collective has no effect on one rank");
  if (!job.training.optimizer.set_to_none)
    warnings.push_back("megatron: zero_grad has no effect: the gradient buffer is always filled with zeros");
  return warnings;
}

std::vector<OptionSpec> megatron_options() {
  return {{.name = "use_distributed_optimizer",
           .kind = OptionKind::boolean,
           .fallback = "true",
           .help = "shard the optimizer; false: plain data parallelism over the buffer"},
          {.name = "overlap_grad_reduce", .kind = OptionKind::boolean, .fallback = "false", .help = "reduce buckets while backward runs"},
          {.name = "overlap_param_gather",
           .kind = OptionKind::boolean,
           .fallback = "false",
           .help = "gather parameters while the next forward runs; needs overlap_grad_reduce"},
          {.name = "bucket_size",
           .kind = OptionKind::integer,
           .fallback = "max(40000000, 1000000 N)",
           .help = "elements after which a bucket closes, read under overlap_grad_reduce only; without it there is one bucket",
           .minimum = 1},
          {.name = "grad_reduce_in_fp32",
           .kind = OptionKind::boolean,
           .fallback = "true",
           .help = "gradient buffer in fp32; false: in the parameters' dtype; a precision spelled out is taken at its word"},
          {.name = "average_in_collective",
           .kind = OptionKind::boolean,
           .fallback = "false",
           .help = "the collective averages; no scaling before it"},
          {.name = "pad_buckets_for_high_nccl_busbw",
           .kind = OptionKind::boolean,
           .fallback = "false",
           .help = "pad buckets to a multiple of 65536 elements too"},
          {.name = "reduce_scatter_with_fp32_accumulation",
           .kind = OptionKind::boolean,
           .fallback = "false",
           .help = "16-bit gradients by all-to-all, summed in fp32 by each rank"},
          {.name = "num_distributed_optimizer_instances",
           .kind = OptionKind::integer,
           .fallback = "1",
           .help = "shard over N / instances ranks and all-reduce shards across instances",
           .minimum = 1}};
}

}  // namespace

StrategyEntry megatron_strategy() {
  return {
      .info = {.name = "megatron",
               .summary = "Optimizer states sharded over a contiguous buffer (Megatron-Core's distributed optimizer)",
               .stack = "megatron",
               .library = "Megatron-Core, 2026-08 (core/distributed, core/optimizer/distrib_optimizer.py)",
               .options = with_expert_parallel_options(megatron_options()),
               .facts = {.library = Library::megatron, .stage = 1, .on_one_rank = false, .with_adapters = false}},
      .make = [](Program& program) -> std::unique_ptr<Hooks> { return with_expert_parallel(program, std::make_unique<Megatron>(program)); },
      .check = check_megatron,
      .differs_because = megatron_differs,
      .warnings = megatron_without_effect};
}

}  // namespace shardsim
