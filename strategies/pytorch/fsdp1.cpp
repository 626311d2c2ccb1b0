// SPDX-License-Identifier: Apache-2.0
// torch.distributed.fsdp.FullyShardedDataParallel (FSDP1): every wrapped module owns one flat parameter, gathered before use on the
// unshard stream; a rate limiter on the host bounds how far gathers run ahead. Source: torch/distributed/fsdp/_runtime_utils.py.
#include <algorithm>

#include "strategies/pytorch/flat_param_handle.hpp"
#include "strategies/shared/sharding.hpp"
#include "strategies/strategy_table.hpp"

namespace shardsim {
namespace {

class Fsdp1 final : public Hooks {
 public:
  explicit Fsdp1(Program& program)
      : program_(program),
        config_(fsdp1_config(program.job)),
        handles_(program, config_),
        output_needs_gradient_(layers_that_need_backward(program.model())) {}

  /// _root_pre_forward, then the root's own _pre_forward.
  void begin_forward(std::int32_t micro_batch) override {
    synchronize_ = !config_.no_sync || micro_batch + 1 == program_.micro_batches();
    order_recorded_ = program_.training().warm || micro_batch > 0;
    post_forward_order_.clear();
    handles_.wait_for_default_stream();
    if (FlatParamHandle* root = handles_.root()) {
      unshard_and_wait(*root);
      prefetch_after(nullptr);
    }
  }

  void pre_forward(std::int32_t layer) override {
    FlatParamHandle* handle = handles_.of_layer(layer);
    if (!handle) return;
    program_.build.call(HostCall::fsdp_pre_forward);
    unshard_and_wait(*handle);
    prefetch_after(handle);
  }

  void post_forward(std::int32_t layer) override {
    FlatParamHandle* handle = handles_.of_layer(layer);
    if (!handle) return;
    program_.build.call(HostCall::fsdp_post_forward);
    if (config_.reshard_after_forward)
      for (FlatParamHandle* h = handle; h != nullptr; h = h->apart) handles_.reshard(*h);
    register_pre_backward_hook(*handle, !called_again() && output_needs_gradient_[static_cast<std::size_t>(layer)]);
  }

  /// The root is never freed after forward: backward starts with it.
  void end_forward() override {
    if (FlatParamHandle* root = handles_.root()) register_pre_backward_hook(*root, true);
  }

  void begin_backward() override {
    if (FlatParamHandle* root = handles_.root()) pre_backward_hook(*root);
  }
  void pre_backward(std::int32_t layer) override {
    if (reentrant() && !called_again()) return;  // the unit's output came before its recomputation
    if (FlatParamHandle* handle = handles_.of_layer(layer)) pre_backward_hook(*handle);
  }
  /// Reentrant checkpointing around the unit calls the wrapped module again: it gathers, and frees as after any forward.
  void pre_recompute(std::int32_t layer) override {
    FlatParamHandle* handle = handles_.of_layer(layer);
    if (handle) called_again() ? unshard_and_wait(*handle) : pre_backward_hook(*handle);
  }
  void post_recompute(std::int32_t layer) override {
    if (!config_.reshard_after_forward || !called_again()) return;
    for (FlatParamHandle* h = handles_.of_layer(layer); h != nullptr; h = h->apart) handles_.reshard(*h);
  }
  /// _register_post_backward_reshard_only_hook: a handle that trains nothing hooks the gradients of its inputs. Under reentrant
  /// checkpointing these are leaves, which the hook closes over until _finalize_params removes it.
  [[nodiscard]] bool holds_input(std::int32_t layer) const override {
    const FlatParamHandle* handle = handles_.of_layer(layer);
    return called_again() && handle != nullptr && !handle->trains;
  }
  /// Adapters are units of their own, recorded in the post-forward order before the block around them: a block's pre-backward prefetches
  /// its own last adapter, and only the first adapter's prefetches the block before.
  void pre_module_backward(std::int32_t layer, std::int32_t module) override {
    FlatParamHandle* handle = handles_.of_layer(layer);
    if (handle && handle->apart && module == first_trained_module(layer) && config_.backward_prefetch == Fsdp1Config::Prefetch::pre)
      prefetch_before(*handle);
  }
  void produce_gradient(ParameterId p) override { handles_.produce_gradient(p); }
  /// A unit that was unsharded ahead in forward made its views (torch.split) before the nodes of the unit in front of it. Autograd runs
  /// the youngest node first: the backward of these views, and with it reshard and reduction, comes after the backward of that unit.
  void post_backward(std::int32_t layer) override {
    FlatParamHandle* handle = handles_.of_layer(layer);
    if (!handle) return;
    program_.build.call(HostCall::fsdp_post_backward);
    finish_late_views();
    if (handle->views_made_ahead && handle->trains)
      late_views_ = handle;
    else
      post_backward_hook(*handle);
  }

  void end_backward() override {
    finish_late_views();
    if (FlatParamHandle* root = handles_.root()) post_backward_hook(*root);
    handles_.finish_backward();
  }

  void step() override { handles_.step(); }

 private:
  /// A forward without a graph, as of a reentrantly checkpointed block, registers no hook: nothing prefetches that block.
  void register_pre_backward_hook(FlatParamHandle& handle, bool graph) {
    post_forward_order_.push_back(&handle);
    handle.needs_pre_backward_unshard = graph;
  }
  /// checkpoint(FSDP(block)) and not FSDP(checkpoint(block)).
  [[nodiscard]] bool called_again() const { return reentrant() && program_.training().checkpointing.around_unit; }
  [[nodiscard]] bool reentrant() const {
    const ActivationCheckpointing& checkpointing = program_.training().checkpointing;
    return checkpointing.use_reentrant && checkpointing.kind == Checkpointing::full;
  }

  void finish_late_views() {
    if (FlatParamHandle* late = std::exchange(late_views_, nullptr)) post_backward_hook(*late);
  }

  /// The order of units is known once a forward has recorded it (_ExecOrderData).
  void prefetch_after(const FlatParamHandle* handle) {
    if (!config_.forward_prefetch || !order_recorded_) return;
    FlatParamHandle* next = handles_.after(handle);
    if (!next) return;
    prefetch(*next);
    next->views_made_ahead = true;
  }

  void unshard_and_wait(FlatParamHandle& handle) {
    if (!handle.prefetched)
      for (FlatParamHandle* h = &handle; h != nullptr; h = h->apart) handles_.unshard(*h);
    handle.prefetched = false;
    handles_.wait_for_unshard();
  }

  void prefetch(FlatParamHandle& handle) {
    for (FlatParamHandle* h = &handle; h != nullptr; h = h->apart) handles_.unshard(*h);
    handle.prefetched = true;
  }

  void pre_backward_hook(FlatParamHandle& handle) {
    program_.build.call(HostCall::fsdp_pre_backward);
    unshard_and_wait(handle);
    handle.needs_pre_backward_unshard = false;
    if (config_.backward_prefetch == Fsdp1Config::Prefetch::pre && (!handle.apart || handle.root)) prefetch_before(handle);
  }

  [[nodiscard]] std::int32_t first_trained_module(std::int32_t l) const {
    const Layer& layer = (*program_.model().layers)[static_cast<std::size_t>(l)];
    const auto& modules = program_.model().type_of(layer).modules;
    const auto trains = [&](std::int32_t index) {
      return program_.model().at(layer.parameters[static_cast<std::size_t>(index)]).trainable;
    };
    const auto found = std::find_if(modules.begin(), modules.end(),
                                    [&](const Module& m) { return std::any_of(m.parameters.begin(), m.parameters.end(), trains); });
    return static_cast<std::int32_t>(found - modules.begin());
  }

  /// Reverse post-forward order. The root's post-backward runs last: what stands before it has had its backward.
  void prefetch_before(const FlatParamHandle& handle) {
    const auto found = std::find(post_forward_order_.begin(), post_forward_order_.end(), &handle);
    if (found == post_forward_order_.begin() || found == post_forward_order_.end()) return;
    if ((*(found - 1))->needs_pre_backward_unshard) prefetch(**(found - 1));
  }

  /// AccumulateGrad's post-hook: reshard, then reduce on the post_backward stream unless no_sync.
  void post_backward_hook(FlatParamHandle& handle) {
    for (FlatParamHandle* h = &handle; h != nullptr; h = h->apart) {
      if (h->trains) handles_.concatenate_gradients(*h);
      if (!h->trains || config_.reshard_after_forward || synchronize_) handles_.reshard(*h);
    }
    if (config_.backward_prefetch == Fsdp1Config::Prefetch::post) prefetch_before(handle);
    if (!synchronize_) return;
    for (FlatParamHandle* h = &handle; h != nullptr; h = h->apart)
      if (h->trains) handles_.reduce_gradient(*h);
  }

  Program& program_;
  Fsdp1Config config_;
  FlatParamHandles handles_;
  std::vector<bool> output_needs_gradient_;  // by layer
  std::vector<FlatParamHandle*> post_forward_order_;
  FlatParamHandle* late_views_ = nullptr;  // its backward has run, but for that of its views
  bool order_recorded_ = true;
  bool synchronize_ = true;
};

bool hybrid(const Options& options) { return options.word("sharding_strategy", "FULL_SHARD").find("HYBRID") != std::string::npos; }

bool trains_adapters(const Model& model) {
  const auto trained = std::ranges::find_if(*model.parameters, [](const Parameter& p) { return p.trainable; });
  return trained != model.parameters->end() && trained->name.find(".lora_") != std::string::npos;
}

Fsdp1Config::Wrap wrap_of(const Job& job) {
  using enum Fsdp1Config::Wrap;
  const Options& options = job.strategy.options;
  const std::string word =
      options.word("wrap", trains_adapters(*job.model) && !options.boolean("use_orig_params", false) ? "peft" : "blocks");
  return word == "embedding" ? embedding : word == "peft" ? peft : word == "none" ? none : blocks;
}

void check_fsdp1(const Job& job, Problems& problems) {
  const Options& options = job.strategy.options;
  const bool flat =
      wrap_of(job) != Fsdp1Config::Wrap::peft && trains_adapters(*job.model);  // adapters and their block in one flat parameter
  if (flat && !options.boolean("use_orig_params", false))
    problems.add(options.where("wrap"), "frozen and trained parameters share a flat parameter only with use_orig_params: true",
                 {"wrap: peft wraps them apart"});
  if (flat && own_dtype_of_trained(*job.model).value_or(job.training.precision.parameters) != job.training.precision.parameters)
    problems.add(options.where("wrap"), "FSDP1 cannot flatten adapters and weights of different dtypes into one parameter",
                 {"wrap: peft wraps them apart"});
  if (options.integer("replicate", 1) > 1 && !hybrid(options))
    problems.add(options.where("replicate"), "replicate needs sharding_strategy HYBRID_SHARD or _HYBRID_SHARD_ZERO2");
  if (hybrid(options) && !options.given("replicate") && job.world_size % std::min(job.world_size, job.gpus_per_node) != 0)
    problems.add(options.where("sharding_strategy"), "the world is not a whole number of nodes");
}

std::string fsdp1_differs(const Job& job) {
  const Fsdp1Config config = fsdp1_config(job);
  if (config.shard == 1) return "NO_SHARD all-reduces full gradients";
  if (size_of(config.reduce) > size_of(config.parameters))
    return "gradients are reduced in " + std::string(name_of(config.reduce)) + "; the root is gathered once";
  if (!config.reshard_after_forward) return "parameters stay gathered after forward: one all-gather a micro-batch";
  return "the root is gathered once, not twice; flat parameters are padded";
}

std::vector<std::string> fsdp1_without_effect(const Job& job) {
  const Fsdp1Config config = fsdp1_config(job);
  std::vector<std::string> warnings;
  for (const char* option : {"backward_prefetch", "forward_prefetch"})
    if (config.shard == 1 && job.strategy.options.given(option))
      warnings.push_back("fsdp1: " + std::string(option) + " has no effect with NO_SHARD");
  if (config.no_sync && job.training.gradient_accumulation_steps == 1)
    warnings.push_back("fsdp1: no_sync has no effect with one micro-batch a step");
  return warnings;
}

/// NO_SHARD replicates everywhere, the hybrid strategies over nodes unless told otherwise.
std::int64_t fsdp1_replicas(const Job& job) {
  const Options& options = job.strategy.options;
  if (options.given("replicate")) return options.integer("replicate", 1);
  const std::string sharding = options.word("sharding_strategy", "FULL_SHARD");
  if (sharding == "NO_SHARD") return job.world_size;
  return sharding.find("HYBRID") == std::string::npos ? 1 : std::max<std::int64_t>(1, job.world_size / job.gpus_per_node);
}

OptionSets fsdp1_variants(std::int64_t nodes, std::int64_t) {
  OptionSets sets{{"sharding_strategy=SHARD_GRAD_OP"}};
  if (nodes > 1) sets.push_back({"sharding_strategy=HYBRID_SHARD", "replicate=" + std::to_string(nodes)});
  return sets;
}

}  // namespace

Fsdp1Config fsdp1_config(const Job& job) {
  const Options& options = job.strategy.options;
  const Precision& precision = job.training.precision;
  const std::string strategy = options.word("sharding_strategy", "FULL_SHARD");
  const std::string prefetch = options.word("backward_prefetch", "BACKWARD_PRE");
  Fsdp1Config c;
  if (hybrid(options))
    c.replicate =
        options.given("replicate") ? options.integer("replicate", 1) : std::max<std::int64_t>(1, job.world_size / job.gpus_per_node);
  if (strategy == "NO_SHARD") c.replicate = job.world_size;
  c.shard = job.world_size / c.replicate;
  c.reshard_after_forward = strategy == "FULL_SHARD" || strategy == "HYBRID_SHARD";
  c.backward_prefetch = prefetch == "BACKWARD_PRE"    ? Fsdp1Config::Prefetch::pre
                        : prefetch == "BACKWARD_POST" ? Fsdp1Config::Prefetch::post
                                                      : Fsdp1Config::Prefetch::none;
  c.forward_prefetch = options.boolean("forward_prefetch", false);
  c.limit_all_gathers = options.boolean("limit_all_gathers", true);
  c.use_orig_params = options.boolean("use_orig_params", false);
  c.no_sync = options.boolean("no_sync", false);
  c.wrap = wrap_of(job);
  c.parameters = precision.parameters;
  c.stored = precision.master.value_or(precision.parameters);
  c.reduce = precision.reduce.value_or(precision.parameters);
  return c;
}

StrategyEntry fsdp1_strategy() {
  return {.info = {.name = "fsdp1",
                   .summary = "Flat parameters sharded over the ranks, gathered module by module under a host rate limiter",
                   .stack = "accelerate",
                   .library = "PyTorch {} (torch.distributed.fsdp.FullyShardedDataParallel)",
                   .releases = {{"2.3", "the oldest that is modelled"}, {"2.15", "nothing: recorded"}},
                   .options = {{.name = "sharding_strategy",
                                .kind = OptionKind::word,
                                .fallback = "FULL_SHARD",
                                .help = "what is sharded, and over which ranks",
                                .words = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"}},
                               {.name = "replicate",
                                .kind = OptionKind::integer,
                                .fallback = "",
                                .help = "replicas of the hybrid strategies; default: one shard group a node",
                                .words = {},
                                .minimum = 1},
                               {.name = "backward_prefetch",
                                .kind = OptionKind::word,
                                .fallback = "BACKWARD_PRE",
                                .help = "when backward gathers the next unit",
                                .words = {"BACKWARD_PRE", "BACKWARD_POST", "none"}},
                               {.name = "wrap",
                                .kind = OptionKind::word,
                                .fallback = "",
                                .help = "auto_wrap_policy; default: peft for adapters without use_orig_params, else blocks",
                                .words = {"blocks", "embedding", "peft", "none"}},
                               {.name = "forward_prefetch",
                                .kind = OptionKind::boolean,
                                .fallback = "false",
                                .help = "gather the next unit before this one computes"},
                               {.name = "limit_all_gathers",
                                .kind = OptionKind::boolean,
                                .fallback = "true",
                                .help = "the host waits so that at most two gathered units are in flight"},
                               {.name = "use_orig_params",
                                .kind = OptionKind::boolean,
                                .fallback = "false",
                                .help = "each tensor starts on 16 bytes; frozen and trained may mix"},
                               {.name = "no_sync",
                                .kind = OptionKind::boolean,
                                .fallback = "false",
                                .help = "reduce in the last micro-batch only; full gradients kept"}},
                   .facts = {.stage = 3,
                             .superseded_by = "fsdp2",
                             .checkpoints_rows = true,
                             .offload = OffloadUnit::parameters_and_optimizer,
                             .replicas = fsdp1_replicas,
                             .variants = fsdp1_variants}},
          .make = [](Program& program) -> std::unique_ptr<Hooks> { return std::make_unique<Fsdp1>(program); },
          .check = check_fsdp1,
          .differs_because = fsdp1_differs,
          .reduction_dtype = [](const Job& job) { return fsdp1_config(job).reduce; },
          .warnings = fsdp1_without_effect};
}

}  // namespace shardsim
