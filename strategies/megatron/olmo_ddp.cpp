// SPDX-License-Identifier: Apache-2.0
// OLMo-core's DDP with a sharded optimizer (branch olmo-ddp): gradients add up in fp32 buckets that are all-reduced while backward runs;
// each rank then narrows its slice of every large tensor, steps on it, and the updated slices are all-gathered in the model's dtype.
// Source: OLMo-core distributed.py (MultiGroupDistributedDataParallel), moe_optimizer.py (OLMoDDPOptimizer).
#include <algorithm>

#include "strategies/deepspeed/zero12_groups.hpp"
#include "strategies/shared/bucketing.hpp"
#include "strategies/shared/expert_parallel.hpp"
#include "strategies/shared/main_gradients.hpp"
#include "strategies/shared/muon.hpp"
#include "strategies/shared/optimizer_step.hpp"
#include "strategies/shared/sharding.hpp"
#include "strategies/strategy_table.hpp"

namespace shardsim {
namespace {

constexpr Elements foreach_chunk{600'000'000};
constexpr std::int64_t smallest_sharded = 4096;  // elements; smaller tensors, and those that do not divide, are updated on every rank

struct OlmoBucket {
  UnitId name{};
  bool experts = false;
  std::vector<ParameterId> parameters{};
  Elements elements{};
  BufferId storage{};        ///< main gradients
  BufferId communication{};  ///< the same buffer where the dtypes agree
  std::size_t pending = 0;
  OpId work{};
};

/// Tensors of one param group that are updated together: the sharded ones, or the rest.
struct UpdateSet {
  UnitId name{};
  std::vector<ParameterId> parameters{};
  bool sharded = false;
  RankGroup group{};
  Elements elements{}, owned{};
  LayoutId whole{}, own{};
  BufferId main{};  ///< fp32 main parameters
};

/// Modules in reverse order of definition, each with its parameters in order.
std::vector<ParameterId> reverse_module_order(const Model& model, std::vector<ParameterId> order) {
  const auto module_of = [&](ParameterId p) { return model.at(p).name.substr(0, model.at(p).name.rfind('.')); };
  std::reverse(order.begin(), order.end());
  for (auto first = order.begin(); first != order.end();) {
    const auto last = std::find_if(first, order.end(), [&](ParameterId p) { return module_of(p) != module_of(*first); });
    std::reverse(first, last);
    first = last;
  }
  return order;
}

class OlmoDdp final : public Hooks {
 public:
  explicit OlmoDdp(Program& program)
      : program_(program),
        build_(program.build),
        overlap_(program.options().boolean("overlap_grad_reduce", true)),
        no_sync_(program.options().boolean("no_sync", true)),
        storage_dtype_(main_gradient_dtype(program.job)),
        communication_dtype_(program.training().precision.reduce.value_or(storage_dtype_)),
        experts_(program.job),
        dp_{program.job.world_size, 1, build_.communicator("dp", "dp", program.job.world_size)},
        process_group_(build_.stream("process group")),
        gradients_(program),
        optimizer_(program),
        bucket_of_(program.model().parameters->size(), -1) {
    if (experts_.size() > 1) replicas_ = experts_.replicas(build_, program.job.world_size);
    optimizer_.step_in_chunks_of(foreach_chunk);
    declare_parameters();
    make_buckets();
    for (const auto& group : optimizer_param_groups(program.model(), program.training().optimizer.split_weight_decay)) {
      const ExpertParallel::Held held = experts_.held(group);
      make_update_sets(held.dense, dp_);
      make_update_sets(held.experts, replicas_);
    }
  }

  void begin_forward(std::int32_t micro_batch) override {
    synchronize_ = !no_sync_ || micro_batch + 1 == program_.micro_batches();
    next_ = 0;
    for (OlmoBucket& bucket : buckets_) bucket.pending = bucket.parameters.size();
    if (micro_batch > 0) return;
    for (const OlmoBucket& bucket : buckets_)
      build_.copy({"zero_grad", bucket.name}, current_stream, {.target = bucket.storage, .count = bucket.elements});
  }

  void produce_gradient(ParameterId p) override { gradients_.produce(p); }

  /// Counts what is ready; launches strictly in bucket order.
  void gradient_ready(ParameterId p) override {
    build_.call(HostCall::megatron_gradient);
    OlmoBucket& bucket = buckets_[static_cast<std::size_t>(bucket_of_[static_cast<std::size_t>(p.index)])];
    gradients_.add_to(bucket.storage, p);
    --bucket.pending;
    if (!synchronize_ || !overlap_) return;
    while (next_ < buckets_.size() && buckets_[next_].pending == 0) all_reduce(buckets_[next_++]);
  }

  /// finalize_grad_reduce: launches what is left, waits, and copies back where the dtypes differ.
  void end_backward() override {
    if (!synchronize_) return;
    while (next_ < buckets_.size()) all_reduce(buckets_[next_++]);
    for (OlmoBucket& bucket : buckets_) {
      build_.wait(current_stream, bucket.work);
      if (bucket.communication != bucket.storage)
        build_.copy({"finalize_grad_reduce", bucket.name}, current_stream,
                    {.source = bucket.communication, .target = bucket.storage, .count = bucket.elements});
    }
  }

  void step() override {
    std::vector<OptimizerStep::Gradients> all;
    for (const UpdateSet& set : sets_) all.push_back(gradients_of(set));
    OptimizerStep::Gradients whole;
    for (const OlmoBucket& bucket : buckets_) {
      whole.buffers.push_back(bucket.storage);
      whole.counts.push_back(bucket.elements);
    }
    optimizer_.clip({whole}, {}, current_stream, storage_dtype_, false);  // every rank has all reduced gradients
    if (program_.training().optimizer.kind == OptimizerKind::muon) gather_matrices();
    optimizer_.emit(all);
    for (const UpdateSet& set : sets_) publish(set);
  }

 private:
  void declare_parameters() {
    for (const bool trainable : {true, false}) {
      const std::vector<ParameterId> ids = experts_.local(parameters_where(program_.model(), trainable));
      if (ids.empty()) continue;
      const BufferId buffer = build_.buffer({.label = {trainable ? "parameters" : "frozen parameters", {}},
                                             .category = Category::parameters,
                                             .role = Role::parameter,
                                             .persistent = true,
                                             .dtype = program_.training().precision.parameters,
                                             .layout = build_.layout({.parameters = build_.parameters(ids)}),
                                             .elements = total_elements(program_.model(), ids)});
      if (trainable) parameters_ = buffer;
    }
  }

  void make_buckets() {
    const std::vector<ParameterId> order = reverse_module_order(program_.model(), experts_.local(parameters_where(program_.model(), true)));
    for (auto first = order.begin(); first != order.end();) {  // a bucket ends where the process group changes
      const auto last = std::find_if(first, order.end(), [&](ParameterId p) { return experts_.expert(p) != experts_.expert(*first); });
      make_buckets_of({first, last});
      first = last;
    }
  }

  void make_buckets_of(const std::vector<ParameterId>& order) {
    std::vector<std::int64_t> sizes;
    for (ParameterId p : order) sizes.push_back(bytes(program_.model().at(p).elements, communication_dtype_).value());
    const auto cap = static_cast<std::int64_t>(program_.options().number("bucket_cap_mb", 250) * 1048576.0);
    for (const BucketRange& range : flush_before_exceeding(sizes, cap)) {
      OlmoBucket bucket{
          .name = build_.unit("bucket " + std::to_string(buckets_.size())),
          .experts = experts_.expert(order.front()),
          .parameters = {order.begin() + static_cast<std::ptrdiff_t>(range.begin), order.begin() + static_cast<std::ptrdiff_t>(range.end)}};
      for (ParameterId p : bucket.parameters) bucket_of_[static_cast<std::size_t>(p.index)] = static_cast<std::int32_t>(buckets_.size());
      bucket.elements = total_elements(program_.model(), bucket.parameters);
      const LayoutId layout = build_.layout({.parameters = build_.parameters(bucket.parameters)});
      bucket.storage = build_.buffer({.label = {"main gradients", bucket.name},
                                      .category = Category::gradients,
                                      .persistent = true,
                                      .dtype = storage_dtype_,
                                      .layout = layout,
                                      .elements = bucket.elements});
      bucket.communication = bucket.storage;
      if (communication_dtype_ != storage_dtype_)
        bucket.communication = build_.buffer({.label = {"communication buffer", bucket.name},
                                              .category = Category::communication_buffers,
                                              .persistent = true,
                                              .dtype = communication_dtype_,
                                              .layout = layout,
                                              .elements = bucket.elements});
      buckets_.push_back(std::move(bucket));
    }
  }

  [[nodiscard]] bool shards(ParameterId p, const RankGroup& group) const {
    const std::int64_t elements = program_.model().at(p).elements.value();
    return elements >= smallest_sharded && elements % group.ranks == 0;
  }

  void make_update_sets(const std::vector<ParameterId>& parameters, const RankGroup& group) {
    if (parameters.empty()) return;
    const UnitId name = build_.unit("param group " + std::to_string(groups_++));
    const DType main_dtype = program_.training().precision.master.value_or(DType::fp32);  // the library always keeps its own
    for (const bool sharded : {true, false}) {
      UpdateSet set{.name = name, .sharded = sharded, .group = group};
      std::copy_if(parameters.begin(), parameters.end(), std::back_inserter(set.parameters),
                   [&](ParameterId p) { return shards(p, group) == sharded; });
      if (set.parameters.empty()) continue;
      set.elements = set.owned = total_elements(program_.model(), set.parameters);
      Layout layout{.parameters = build_.parameters(set.parameters)};
      if (sharded) {
        layout.partition = Layout::Partition::each;
        layout.n = static_cast<std::int32_t>(group.ranks);
        layout.stride = static_cast<std::int32_t>(group.stride);
        set.owned = set.elements / group.ranks;
      }
      set.whole = build_.layout(layout);
      layout.shard = sharded;
      set.own = build_.layout(layout);
      set.main = build_.buffer({.label = {sharded ? "sharded main parameters" : "replicated main parameters", name},
                                .category = Category::optimizer_states,
                                .persistent = true,
                                .dtype = main_dtype,
                                .layout = set.own,
                                .elements = set.owned});
      optimizer_.add({.label = {"optimizer", name},
                      .parameters = set.parameters,
                      .weights = set.main,
                      .layout = set.own,
                      .count = set.owned,
                      .dtype = main_dtype});
      sets_.push_back(std::move(set));
    }
  }

  void all_reduce(OlmoBucket& bucket) {
    if (bucket.communication != bucket.storage)
      build_.copy({"copy to communication buffer", bucket.name}, current_stream,
                  {.source = bucket.storage, .target = bucket.communication, .count = bucket.elements});
    build_.copy({"div_", bucket.name}, current_stream,
                {.source = bucket.communication,
                 .target = bucket.communication,
                 .count = bucket.elements,
                 .scale = 1.0 / static_cast<double>(program_.job.world_size)});
    build_.wait_stream(process_group_, current_stream);
    bucket.work = build_.communicate({"nccl:all_reduce", bucket.name}, process_group_,
                                     {.kind = Collective::all_reduce,
                                      .communicator = (bucket.experts ? replicas_ : dp_).communicator,
                                      .dtype = communication_dtype_,
                                      .payload = bucket.elements,
                                      .target = bucket.communication});
  }

  /// The buckets that hold gradients of a set, and how many elements of each this rank uses: after the all-reduce a slice is a view.
  [[nodiscard]] OptimizerStep::Gradients gradients_of(const UpdateSet& set) const {
    OptimizerStep::Gradients gradients;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      Elements elements;
      for (ParameterId p : set.parameters)
        if (bucket_of_[static_cast<std::size_t>(p.index)] == static_cast<std::int32_t>(b)) elements += program_.model().at(p).elements;
      if (elements == Elements{}) continue;
      gradients.buffers.push_back(buckets_[b].storage);
      gradients.counts.push_back(set.sharded ? elements / set.group.ranks : elements);
    }
    return gradients;
  }

  /// Muon's Newton-Schulz needs whole matrices: one fp32 all-gather each, and every rank computes all of them.
  void gather_matrices() {
    const std::vector<bool> orthogonalized = orthogonalized_parameters(program_.model());
    for (const UpdateSet& set : sets_)
      for (ParameterId p : set.parameters) {
        const Parameter& parameter = program_.model().at(p);
        if (!set.sharded || !orthogonalized[static_cast<std::size_t>(p.index)]) continue;
        const UnitId name = program_.unit(p);
        const Layout layout{.parameters = build_.parameters(std::span(&p, 1)),
                            .partition = Layout::Partition::each,
                            .n = static_cast<std::int32_t>(set.group.ranks),
                            .stride = static_cast<std::int32_t>(set.group.stride)};
        const BufferId matrix = build_.allocate({.label = {"gathered momentum", name},
                                                 .category = Category::communication_buffers,
                                                 .dtype = DType::fp32,
                                                 .pool = current_stream,
                                                 .layout = build_.layout(layout),
                                                 .elements = parameter.elements});
        build_.copy({"pack momentum", name}, current_stream,
                    {.source = buckets_[static_cast<std::size_t>(bucket_of_[static_cast<std::size_t>(p.index)])].storage,
                     .target = matrix,
                     .count = parameter.elements / set.group.ranks});
        build_.communicate({"nccl:_all_gather_base", name}, current_stream,
                           {.kind = Collective::all_gather,
                            .communicator = set.group.communicator,
                            .dtype = DType::fp32,
                            .payload = parameter.elements,
                            .target = matrix});
        build_.free(matrix);
      }
  }

  /// Replicated tensors are copied; own slices are packed, all-gathered into a buffer of the whole group, and copied from there.
  void publish(const UpdateSet& set) {
    if (!set.sharded) {
      build_.copy({"copy main to model parameters", set.name}, current_stream,
                  {.source = set.main, .target = parameters_, .count = set.elements});
      return;
    }
    const auto make = [&](const char* verb, LayoutId layout, Elements elements) {
      return build_.allocate({.label = {verb, set.name},
                              .category = Category::communication_buffers,
                              .dtype = program_.training().precision.parameters,
                              .pool = current_stream,
                              .layout = layout,
                              .elements = elements});
    };
    const BufferId packed = make("packed shards", set.own, set.owned);
    build_.copy({"pack own shards", set.name}, current_stream, {.source = set.main, .target = packed, .count = set.owned});
    const BufferId gathered = make("gather buffer", set.whole, set.elements);
    build_.communicate({"nccl:_all_gather_base", set.name}, current_stream,
                       {.kind = Collective::all_gather,
                        .communicator = set.group.communicator,
                        .dtype = program_.training().precision.parameters,
                        .payload = set.elements,
                        .source = packed,
                        .target = gathered});
    build_.copy(
        {"copy main to model parameters", set.name}, current_stream,
        {.source = gathered, .target = parameters_, .count = set.elements, .kernels = static_cast<std::int32_t>(set.parameters.size())});
    build_.free(packed);
    build_.free(gathered);
  }

  Program& program_;
  ScheduleBuilder& build_;
  bool overlap_, no_sync_;
  DType storage_dtype_, communication_dtype_;
  ExpertParallel experts_;
  RankGroup dp_, replicas_;  // replicas: ranks that hold the same experts
  StreamId process_group_;
  MainGradients gradients_;
  OptimizerStep optimizer_;  // target i: sets_[i]
  BufferId parameters_;
  std::vector<OlmoBucket> buckets_;
  std::vector<std::int32_t> bucket_of_;  // by parameter
  std::vector<UpdateSet> sets_;
  std::int32_t groups_ = 0;
  std::size_t next_ = 0;  // first bucket not launched yet
  bool synchronize_ = true;
};

void check_olmo_ddp(const Job& job, Problems& problems) {
  const Options& options = job.strategy.options;
  check_expert_parallel(job, job.world_size, problems);
  if (options.boolean("reduce_scatter_grads", false))
    problems.add(options.where("reduce_scatter_grads"),
                 "reduce_scatter_grads cannot be combined with the bucketed DDP: its gradients are all-reduced already");
  if (job.training.offload.optimizer != OffloadTarget::none || job.training.offload.parameters != OffloadTarget::none)
    problems.add({}, "olmo_ddp: offload is not supported", {"use offload: none, or strategy zero2 or zero3"});
}

std::vector<std::string> olmo_ddp_without_effect(const Job& job) {
  std::vector<std::string> warnings;
  if (job.training.gradient_accumulation_steps == 1 && job.strategy.options.given("no_sync"))
    warnings.push_back("olmo_ddp: no_sync has no effect with one micro-batch a step");
  if (!job.training.optimizer.set_to_none)
    warnings.push_back("olmo_ddp: zero_grad has no effect: main gradients are always filled with zeros");
  warn_expert_parallel(job, warnings);
  return warnings;
}

}  // namespace

StrategyEntry olmo_ddp_strategy() {
  return {
      .info = {.name = "olmo_ddp",
               .summary = "Gradients all-reduced in fp32, optimizer states sharded tensor by tensor (OLMo-core's DDP)",
               .stack = "olmo-core",
               .library = "OLMo-core, branch olmo-ddp, 2026-06 (distributed.py, moe_optimizer.py)",
               .options = with_expert_parallel_options(
                   {{.name = "bucket_cap_mb",
                     .kind = OptionKind::number,
                     .fallback = "250",
                     .help = "MiB in the communication dtype that a bucket may not exceed",
                     .minimum = 1e-6},
                    {.name = "overlap_grad_reduce",
                     .kind = OptionKind::boolean,
                     .fallback = "true",
                     .help = "reduce buckets while backward runs"},
                    {.name = "no_sync", .kind = OptionKind::boolean, .fallback = "true", .help = "reduce in the last micro-batch only"},
                    {.name = "reduce_scatter_grads",
                     .kind = OptionKind::boolean,
                     .fallback = "false",
                     .help = "only without the bucketed DDP"}}),
               .facts = {.library = Library::olmo_core, .stage = 1, .on_one_rank = false, .with_adapters = false}},
      .make = [](Program& program) -> std::unique_ptr<Hooks> { return with_expert_parallel(program, std::make_unique<OlmoDdp>(program)); },
      .check = check_olmo_ddp,
      .differs_because = [](const Job&) -> std::string {
        return "OLMo-core all-reduces the gradients, in fp32 by default, where the paper reduce-scatters";
      },
      .warnings = olmo_ddp_without_effect};
}

}  // namespace shardsim
