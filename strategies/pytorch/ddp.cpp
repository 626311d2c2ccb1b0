// SPDX-License-Identifier: Apache-2.0
// torch.nn.parallel.DistributedDataParallel: gradients grouped into buckets in arrival order, each all-reduced on the process group's
// stream as soon as it and all buckets before it are complete. Source: torch/csrc/distributed/c10d/reducer.cpp.
#include "strategies/pytorch/ddp.hpp"

#include <algorithm>

#include "strategies/pytorch/comm_hooks.hpp"
#include "strategies/shared/bucketing.hpp"
#include "strategies/shared/expert_parallel.hpp"

namespace shardsim {
namespace {

constexpr Bytes default_first_bucket = mebibytes(1);
constexpr Bytes default_bucket_cap = mebibytes(25);

struct Bucket {
  std::vector<ParameterId> parameters;
  Elements elements;
  BufferId buffer;
  UnitId name;
  std::size_t pending = 0;
  OpId work;
};

/// Limits of Reducer::rebuild_buckets: the small first bucket only if the user did not set bucket_cap_mb.
std::vector<std::int64_t> bucket_limits(const Options& options) {
  const auto megabytes = [&](const char* name, Bytes fallback) {
    return options.given(name) ? static_cast<std::int64_t>(options.number(name, 0) * 1048576.0) : fallback.value();
  };
  const std::int64_t cap = megabytes("bucket_cap_mb", default_bucket_cap);
  if (options.given("first_bucket_mb")) return {megabytes("first_bucket_mb", default_first_bucket), cap};
  if (options.given("bucket_cap_mb")) return {cap};
  return {default_first_bucket.value(), cap};
}

class Ddp final : public Hooks {
 public:
  Ddp(Program& program, LocalUpdate update)
      : program_(program),
        build_(program.build),
        replicated_(program, std::move(update)),
        view_(program.options().boolean("gradient_as_bucket_view", false)),
        no_sync_(program.options().boolean("no_sync", true)),
        find_unused_(program.options().boolean("find_unused_parameters", false)),
        static_graph_(program.options().boolean("static_graph", false)),
        dp_(build_.communicator("dp", "dp", program.job.world_size)),
        process_group_(build_.stream("process group")),
        held_(ExpertParallel(program.job).held(replicated_.trainable())),
        hook_(make_comm_hook(program, dp_, process_group_)) {
    replicated_.add_optimizer();
    rebuilds_ = !program.training().warm && !no_sync_ && !view_ && program.micro_batches() > 1 && (static_graph_ || !find_unused_);
    if (!held_.experts.empty()) expert_replicas_ = ExpertParallel(program.job).replicas(build_, program.job.world_size);
    build_buckets();
  }

  void begin_forward(std::int32_t micro_batch) override {
    const bool synchronized = micro_batch == 0 || synchronize_;  // in the backward before this forward
    synchronize_ = !no_sync_ || micro_batch + 1 == program_.micro_batches();
    if (rebuilds_ && micro_batch < 2) micro_batch == 0 ? allocate_buckets() : rebuild_buckets();
    if (synchronized) broadcast_buffers();
    next_ = 0;
    for (Bucket& b : buckets_) b.pending = b.parameters.size();
  }

  void produce_gradient(ParameterId p) override {
    if (view_ && in_bucket_[static_cast<std::size_t>(p.index)]) return;  // accumulates in place: .grad is a view of the bucket
    (void)replicated_.gradient(p, view_ && bucketed(p));
  }

  /// Reducer::autograd_hook, mark_variable_ready_dense, mark_bucket_ready.
  void gradient_ready(ParameterId p) override {
    if (!synchronize_ || !bucketed(p)) return;
    build_.call(HostCall::ddp_gradient);
    Bucket& bucket = buckets_[static_cast<std::size_t>(bucket_of_[static_cast<std::size_t>(p.index)])];
    copy_to_bucket(p, bucket);
    if (--bucket.pending > 0 || delayed()) return;
    while (next_ < buckets_.size() && buckets_[next_].pending == 0) all_reduce(buckets_[next_++]);
  }

  /// Reducer::finalize_backward.
  void end_backward() override {
    if (!synchronize_) return;
    if (delayed() || (find_unused_ && !static_graph_)) all_reduce_unused_map();
    while (next_ < buckets_.size()) all_reduce(buckets_[next_++]);  // static graph's first iteration, and buckets nobody completed
    for (std::size_t i = 0; replicated_.overlapped() && i < buckets_.size(); ++i)
      replicated_.step_bucket(i, buckets_[i].buffer, buckets_[i].work);
    for (Bucket& bucket : buckets_) {
      build_.wait(ScheduleBuilder::compute_stream(), bucket.work);
      if (hook_) hook_->decompress(hooked(bucket));
      if (!view_) copy_to_gradients(bucket);
    }
    for (ParameterId p : held_.experts) all_reduce_expert(p);
    reduced_ = true;
  }

  void step() override {
    if (!view_) return replicated_.step();
    OptimizerStep::Gradients all, own;
    const auto add = [&](BufferId buffer, std::span<const ParameterId> parameters) {
      Elements updated;
      for (ParameterId p : parameters) updated += replicated_.updates(p) ? program_.model().at(p).elements : Elements{};
      all.buffers.push_back(buffer);
      all.counts.push_back(build_.schedule().at(buffer).elements);
      own.buffers.push_back(buffer);
      own.counts.push_back(updated);
    };
    for (const Bucket& b : buckets_) add(b.buffer, b.parameters);
    for (const ParameterId& p : held_.experts) add(replicated_.gradient(p), std::span(&p, 1));
    replicated_.step(all, own);
    zero_grad_views();
  }

 private:
  /// Routed experts that are split over ranks stay outside (_ddp_params_and_buffers_to_ignore).
  [[nodiscard]] bool bucketed(ParameterId p) const { return bucket_of_[static_cast<std::size_t>(p.index)] >= 0; }

  /// Set to none, views are lost: the next backward allocates gradients and moves them into the buckets again. Filled with zeros, they
  /// stay.
  void zero_grad_views() {
    std::vector<BufferId> gradients;
    for (ParameterId p : held_.experts) gradients.push_back(replicated_.gradient(p));
    if (program_.training().optimizer.set_to_none) {
      for (ParameterId p : held_.experts) replicated_.free_gradient(p);
      std::fill(in_bucket_.begin(), in_bucket_.end(), false);
      return;
    }
    for (const Bucket& b : buckets_) gradients.push_back(b.buffer);
    zero_grad(program_, gradients);
  }

  /// The static graph's first iteration reduces nothing until backward has ended, and first of all learns which parameters it used.
  [[nodiscard]] bool delayed() const { return static_graph_ && !program_.training().warm && !reduced_; }

  void allocate_buckets() {
    for (const Bucket& bucket : buckets_) build_.allocate(bucket.buffer);
  }

  /// Reducer::rebuild_buckets, at the first forward after a backward that reduced: the order in which gradients arrived is known.
  /// Rank 0's assignment is broadcast (sync_bucket_indices).
  void rebuild_buckets() {
    for (const Bucket& bucket : buckets_) build_.free(bucket.buffer);
    buckets_.clear();
    for (std::vector<ParameterId>& parameters : ddp_buckets(program_.job, true)) add_bucket(std::move(parameters), true);
    allocate_buckets();
    broadcast("sync_bucket_indices", DType::int32, Elements{static_cast<std::int64_t>(held_.dense.size()) + 1});
    broadcast("sync_bucket_indices", DType::int32, Elements{static_cast<std::int64_t>(buckets_.size())});
  }

  /// DistributedDataParallel._sync_buffers: rank 0's running statistics and the like, before every forward that follows a synchronized
  /// backward; one broadcast a dtype (_broadcast_coalesced).
  void broadcast_buffers() {
    if (!program_.options().boolean("broadcast_buffers", true)) return;
    for (const ModuleBuffers& buffers : program_.model().buffers)
      broadcast("broadcast buffers", buffers.dtype, buffers.elements, buffers.constant);
  }

  void broadcast(const char* verb, DType dtype, Elements elements, bool control = true) {
    const BufferId buffer = build_.allocate({.label = {verb, {}},
                                             .category = Category::temporaries,
                                             .dtype = dtype,
                                             .pool = ScheduleBuilder::compute_stream(),
                                             .elements = elements});
    build_.wait_stream(process_group_, ScheduleBuilder::compute_stream());
    const OpId work = build_.communicate(
        {verb, {}}, process_group_,
        {.kind = Collective::broadcast, .communicator = dp_, .dtype = dtype, .control = control, .payload = elements, .target = buffer});
    build_.wait(ScheduleBuilder::compute_stream(), work);
    build_.free(buffer);
  }

  void build_buckets() {
    bucket_of_.assign(program_.model().parameters->size(), -1);
    in_bucket_.assign(bucket_of_.size(), false);
    for (std::vector<ParameterId>& parameters : ddp_buckets(program_.job)) add_bucket(std::move(parameters), !rebuilds_);
    if (view_ && program_.training().warm && !program_.training().optimizer.set_to_none)
      for (ParameterId p : held_.dense) in_bucket_[static_cast<std::size_t>(p.index)] = true;  // since the first iteration
  }

  void add_bucket(std::vector<ParameterId> parameters, bool persistent) {
    Bucket bucket{.parameters = std::move(parameters),
                  .elements = {},
                  .buffer = {},
                  .name = build_.unit("bucket " + std::to_string(buckets_.size())),
                  .work = {}};
    bucket.elements = total_elements(program_.model(), bucket.parameters);
    bucket.buffer = build_.buffer({.label = {"Reducer bucket", bucket.name},
                                   .category = view_ ? Category::gradients : Category::communication_buffers,
                                   .role = view_ ? Role::gradient : Role::none,
                                   .persistent = persistent,
                                   .dtype = replicated_.gradient_dtype(),
                                   .pool = ScheduleBuilder::compute_stream(),
                                   .layout = build_.layout({.parameters = build_.parameters(bucket.parameters)}),
                                   .elements = bucket.elements});
    for (ParameterId p : bucket.parameters) bucket_of_[static_cast<std::size_t>(p.index)] = static_cast<std::int32_t>(buckets_.size());
    buckets_.push_back(std::move(bucket));
  }

  /// bucket = grad / N; with gradient_as_bucket_view the gradient then lives in the bucket.
  void copy_to_bucket(ParameterId p, const Bucket& bucket) {
    const Elements count = program_.model().at(p).elements;
    const double scale = hook_ ? 1.0 : 1.0 / static_cast<double>(program_.job.world_size);
    const UnitId name = program_.unit(p);
    const bool aliased = in_bucket_[static_cast<std::size_t>(p.index)];
    const BufferId source = aliased ? view_in_bucket(p, bucket) : replicated_.gradient(p);
    build_.copy({aliased ? "Reducer::div" : "Reducer::mul_out", name}, ScheduleBuilder::compute_stream(),
                {.source = source, .target = aliased ? source : bucket.buffer, .count = count, .scale = scale});
    if (!view_ || aliased) return;
    replicated_.free_gradient(p);
    in_bucket_[static_cast<std::size_t>(p.index)] = true;
  }

  /// The parameter's place in its bucket.
  [[nodiscard]] BufferId view_in_bucket(ParameterId p, const Bucket& bucket) {
    const auto here = std::find(bucket.parameters.begin(), bucket.parameters.end(), p);
    Buffer view = build_.schedule().at(bucket.buffer);
    view.label = {"bucket view", program_.unit(p)};
    view.role = Role::none;
    view.layout = build_.layout({.parameters = build_.parameters(std::span(&p, 1))});
    view.elements = program_.model().at(p).elements;
    view.view_of = bucket.buffer;
    view.view_offset = total_elements(program_.model(), std::span(bucket.parameters.begin(), here));
    return build_.buffer(view);
  }

  [[nodiscard]] HookedBucket hooked(const Bucket& bucket) const {
    return {bucket.name, bucket.buffer, bucket.elements, replicated_.gradient_dtype(), &bucket.parameters};
  }

  void all_reduce(Bucket& bucket) {
    build_.call(HostCall::ddp_bucket);
    if (hook_) {
      bucket.work = hook_->reduce(hooked(bucket));
      return;
    }
    build_.wait_stream(process_group_, ScheduleBuilder::compute_stream());
    bucket.work = build_.communicate({"nccl:all_reduce", bucket.name}, process_group_,
                                     {.kind = Collective::all_reduce,
                                      .communicator = dp_,
                                      .dtype = replicated_.gradient_dtype(),
                                      .payload = bucket.elements,
                                      .target = bucket.buffer});
  }

  void copy_to_gradients(const Bucket& bucket) {
    for (ParameterId p : bucket.parameters) {
      if (!replicated_.has_gradient(p)) continue;
      build_.copy({"Reducer::copy_bucket_to_grad", program_.unit(p)}, ScheduleBuilder::compute_stream(),
                  {.source = bucket.buffer, .target = replicated_.gradient(p), .count = program_.model().at(p).elements});
    }
  }

  /// What users add for experts, as their gradients belong to the ranks that hold the same ones: a loop after backward. The gradient sums
  /// tokens of the whole expert group, so the mean over the world remains to be taken. Source: FastMoE, fmoe/distributed.py.
  void all_reduce_expert(ParameterId p) {
    if (!replicated_.has_gradient(p)) return;
    const UnitId name = program_.unit(p);
    const BufferId gradient = replicated_.gradient(p);
    const Elements count = program_.model().at(p).elements;
    build_.copy({"expert gradient / N", name}, ScheduleBuilder::compute_stream(),
                {.source = gradient, .target = gradient, .count = count, .scale = 1.0 / static_cast<double>(program_.job.world_size)});
    if (expert_replicas_.ranks == 1) return;
    build_.communicate({"nccl:all_reduce", name}, ScheduleBuilder::compute_stream(),
                       {.kind = Collective::all_reduce,
                        .communicator = expert_replicas_.communicator,
                        .dtype = replicated_.gradient_dtype(),
                        .payload = count,
                        .target = gradient});
  }

  /// One int32 for each parameter, summed over ranks: which ones were used anywhere.
  void all_reduce_unused_map() {
    const Elements count{static_cast<std::int64_t>(held_.dense.size())};
    const BufferId map = build_.allocate({.label = {"unused parameters map", {}},
                                          .category = Category::temporaries,
                                          .dtype = DType::int32,
                                          .pool = ScheduleBuilder::compute_stream(),
                                          .elements = count});
    build_.wait_stream(process_group_, ScheduleBuilder::compute_stream());
    const OpId work = build_.communicate(
        {"nccl:all_reduce", build_.unit("unused parameters map")}, process_group_,
        {.kind = Collective::all_reduce, .communicator = dp_, .dtype = DType::int32, .control = true, .payload = count, .target = map});
    build_.wait(ScheduleBuilder::compute_stream(), work);
    build_.free(map);
  }

  Program& program_;
  ScheduleBuilder& build_;
  Replicated replicated_;
  bool view_, no_sync_, find_unused_, static_graph_;
  CommunicatorId dp_;
  RankGroup expert_replicas_;  // ranks that hold the same experts
  StreamId process_group_;
  ExpertParallel::Held held_;  // trainable parameters of this rank; experts apart where they are split
  std::vector<Bucket> buckets_;
  std::vector<std::int32_t> bucket_of_;  // by parameter
  std::vector<bool> in_bucket_;          // by parameter: .grad is a view of the bucket
  std::size_t next_ = 0;                 // first bucket not launched yet in this backward
  bool synchronize_ = true;
  bool rebuilds_ = false;  // buckets change between the micro-batches of the first step
  bool reduced_ = false;   // some backward of this step has reduced
  std::unique_ptr<CommHook> hook_;
};

std::string ddp_differs(const Job& job) {
  if (!job.strategy.options.boolean("no_sync", true) && job.training.gradient_accumulation_steps > 1)
    return "without no_sync every micro-batch is all-reduced";
  return {};
}

}  // namespace

std::vector<std::vector<ParameterId>> ddp_buckets(const Job& job) { return ddp_buckets(job, job.training.warm); }

std::vector<std::vector<ParameterId>> ddp_buckets(const Job& job, bool after_first_iteration) {
  const Model& model = *job.model;
  const Options& options = job.strategy.options;
  const bool find_unused = options.boolean("find_unused_parameters", false), static_graph = options.boolean("static_graph", false);
  const bool rebuilt = after_first_iteration && (static_graph || !find_unused);
  const ExpertParallel experts(job);
  std::vector<ParameterId> order = experts.held(arrival_order(model)).dense;
  std::vector<std::int64_t> limits = bucket_limits(options);
  if (!rebuilt) {
    // Iteration 1, and every one with find_unused_parameters: definition order. Without it a single bucket holds everything.
    order = experts.held(parameters_where(model, true)).dense;
    if (static_graph || !find_unused) limits.clear();
  }
  std::vector<std::int64_t> sizes;
  for (ParameterId p : order)
    sizes.push_back(bytes(model.at(p).elements, model.at(p).dtype.value_or(job.training.precision.gradients)).value());
  std::vector<std::vector<ParameterId>> buckets;
  for (const BucketRange& range : close_when_full(sizes, limits))
    buckets.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(range.begin), order.begin() + static_cast<std::ptrdiff_t>(range.end));
  if (!rebuilt) std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

std::unique_ptr<Hooks> make_ddp(Program& program, LocalUpdate update) { return std::make_unique<Ddp>(program, std::move(update)); }

std::vector<Release> ddp_releases() { return {{"2.13", "the oldest that is modelled"}, {"2.15", "nothing: recorded"}}; }

std::vector<OptionSpec> ddp_options() {
  std::vector<OptionSpec> options{
      {.name = "bucket_cap_mb", .kind = OptionKind::number, .fallback = "25", .help = "MiB after which a bucket closes", .minimum = 1e-6},
      {.name = "first_bucket_mb",
       .kind = OptionKind::number,
       .fallback = "1",
       .help = "cap of the first bucket; 1 only if bucket_cap_mb is not set",
       .minimum = 1e-6},
      {.name = "gradient_as_bucket_view", .kind = OptionKind::boolean, .fallback = "false", .help = ".grad is a view of its bucket"},
      {.name = "find_unused_parameters",
       .kind = OptionKind::boolean,
       .fallback = "false",
       .help = "walk the graph each step; all-reduce a map of unused parameters"},
      {.name = "static_graph",
       .kind = OptionKind::boolean,
       .fallback = "false",
       .help = "the graph never changes: first iteration delays every all-reduce"},
      {.name = "no_sync", .kind = OptionKind::boolean, .fallback = "true", .help = "reduce in the last micro-batch only"},
      {.name = "broadcast_buffers", .kind = OptionKind::boolean, .fallback = "true", .help = "rank 0's buffers before every forward"}};
  std::ranges::move(comm_hook_options(), std::back_inserter(options));
  return options;
}

std::vector<std::string> ddp_without_effect(const Job& job) {
  std::vector<std::string> warnings;
  const Options& options = job.strategy.options;
  if (job.training.gradient_accumulation_steps == 1 && options.given("no_sync"))
    warnings.push_back(job.strategy.name + ": no_sync has no effect with one micro-batch a step");
  if (options.boolean("find_unused_parameters", false) && options.boolean("static_graph", false))
    warnings.push_back(job.strategy.name + ": find_unused_parameters has no effect on the buckets with static_graph");
  warn_expert_parallel(job, warnings);
  return warnings;
}

StrategyEntry ddp_strategy() {
  return {.info = {.name = "ddp",
                   .summary = "Full replica on every rank; gradient buckets all-reduced while backward runs",
                   .stack = "transformers",
                   .library = "PyTorch {} (torch.nn.parallel.DistributedDataParallel)",
                   .releases = ddp_releases(),
                   .options = with_expert_parallel_options(ddp_options()),
                   .facts = {.names_stage = true, .muon = MuonSupport::whole_matrices}},
          .make = [](Program& program) { return with_expert_parallel(program, make_ddp(program)); },
          .check =
              [](const Job& job, Problems& problems) {
                check_expert_parallel(job, job.world_size, problems);
                check_comm_hook(job, problems);
              },
          .differs_because = ddp_differs,
          .warnings = ddp_without_effect};
}

}  // namespace shardsim
