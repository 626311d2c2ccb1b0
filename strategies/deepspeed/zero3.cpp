// SPDX-License-Identifier: Apache-2.0
// DeepSpeed ZeRO stage 3: every parameter partitioned by itself, gathered by hooks of every submodule, gradients reduce-scattered in
// buckets. Source: deepspeed/runtime/zero/{stage3,parameter_offload,partition_parameters}.py. MiCS is the same within shard groups.
#include <algorithm>
#include <memory>
#include <utility>

#include "strategies/deepspeed/parameter_coordinator.hpp"
#include "strategies/deepspeed/submodule_hooks.hpp"
#include "strategies/deepspeed/zero3_gradients.hpp"
#include "strategies/shared/expert_parallel.hpp"
#include "strategies/shared/optimizer_step.hpp"
#include "strategies/shared/sharding.hpp"
#include "strategies/strategy_table.hpp"

namespace shardsim {
namespace {

/// Records which submodules one micro-batch fetches, in order (ZeroParamStatus.RECORD).
class TraceRecorder final : public SubmoduleHooks {
 public:
  TraceRecorder(const Job& job, const SubmoduleTree& tree) : SubmoduleHooks(job, tree) {}
  void produce_gradient(ParameterId) override {}
  void step() override {}
  [[nodiscard]] std::vector<std::int32_t> take() { return std::move(trace_); }

 private:
  void fetch_sub_module(std::int32_t submodule) override { trace_.push_back(submodule); }
  void release_sub_module(std::int32_t, bool) override {}
  void drop_saved(std::int32_t) override {}
  std::vector<std::int32_t> trace_;
};

std::vector<std::int32_t> record_trace(const Job& job, const SubmoduleTree& tree) {
  Job one = job;
  one.training.gradient_accumulation_steps = 1;
  Program scratch(one);
  TraceRecorder recorder(one, tree);
  run_training_loop(scratch, recorder);
  return recorder.take();
}

bool is_mics(const Job& job) { return job.strategy.name == "mics"; }

Zero3Config zero3_config(const Job& job) {
  const Options& options = job.strategy.options;
  const Precision& precision = job.training.precision;
  Zero3Config c;
  c.shard = options.integer("mics_shard_size", job.world_size);
  c.replicas = job.world_size / c.shard;
  c.prefetch_bucket = options.integer("stage3_prefetch_bucket_size", c.prefetch_bucket);
  c.persistence_threshold = options.integer("stage3_param_persistence_threshold", c.persistence_threshold);
  c.max_live = options.integer("stage3_max_live_parameters", c.max_live);
  c.max_reuse_distance = options.integer("stage3_max_reuse_distance", c.max_reuse_distance);
  c.sub_group = options.integer("sub_group_size", c.sub_group);
  c.reduce_bucket = options.integer("reduce_bucket_size", c.reduce_bucket);
  c.overlap_comm = options.boolean("overlap_comm", true);
  c.reduce_scatter = options.boolean("reduce_scatter", true);
  c.contiguous_gradients = options.boolean("contiguous_gradients", true);
  c.hpz = is_mics(job) ? 1 : options.integer("zero_hpz_partition_size", 1);
  c.quantized_weights = !is_mics(job) && options.boolean("zero_quantized_weights", false);
  c.quantized_gradients = options.boolean("zero_quantized_gradients", false) && job.world_size > job.gpus_per_node;
  c.gpus_per_node = job.gpus_per_node;
  c.hierarchical_gather = options.boolean("mics_hierarchical_params_gather", false) && c.shard > job.gpus_per_node;
  c.parameters = precision.parameters;
  c.accumulation = precision.gradients;
  c.communication = precision.reduce.value_or(precision.parameters);
  c.master = precision.master.value_or(precision.parameters);
  return c;
}

/// By parameter: of a bias of nn.Linear that trains with its weight, the weight. GPT-2's Conv1D calls addmm, which nobody replaces.
std::vector<ParameterId> weights_of_biases(const Model& model) {
  std::vector<ParameterId> weights(model.parameters->size());
  if (model.family == "gpt2") return weights;
  for (const Layer& layer : *model.layers)
    for (const Module& m : model.type_of(layer).modules) {
      if (m.parameters.size() != 2 || m.forward.products.empty()) continue;
      const ParameterId weight = layer.parameters[static_cast<std::size_t>(m.parameters.front())];
      const ParameterId bias = layer.parameters[static_cast<std::size_t>(m.parameters.back())];
      const bool tied = std::find(model.tied.begin(), model.tied.end(), weight) != model.tied.end();  // final elsewhere
      if (model.at(weight).shape.size() == 2 && model.at(weight).trainable && !tied && !model.at(bias).matrix())
        weights[static_cast<std::size_t>(bias.index)] = weight;
    }
  return weights;
}

/// What the hooks act on; the tree must stand before the hooks' base class does.
struct Zero3State {
  explicit Zero3State(Program& program)
      : config(zero3_config(program.job)),
        tree(program.build, program.job),
        coordinator(program, config, tree.submodules()),
        gradients(program, config),
        weight_of_bias(weights_of_biases(program.model())) {
    coordinator.set_trace(record_trace(program.job, tree));
  }
  Zero3Config config;
  SubmoduleTree tree;
  ParameterCoordinator coordinator;
  Zero3Gradients gradients;
  std::vector<ParameterId> weight_of_bias;
};

class Zero3Hooks final : public SubmoduleHooks {
 public:
  explicit Zero3Hooks(Program& program) : Zero3Hooks(program, std::make_unique<Zero3State>(program)) {}

  void begin_forward(std::int32_t micro_batch) override {
    state_->coordinator.reset_step(micro_batch);
    state_->gradients.begin_micro_batch(micro_batch);
    SubmoduleHooks::begin_forward(micro_batch);
  }
  void produce_gradient(ParameterId p) override { state_->gradients.produce(p); }
  /// ZeRO-3 computes F.linear by a function of its own, whose backward returns the weight's gradient before the bias'.
  void gradient_ready(ParameterId p) override {
    if (state_->weight_of_bias[static_cast<std::size_t>(p.index)].valid()) {
      waiting_ = p;
      return;
    }
    state_->gradients.ready(p);
    if (waiting_.valid()) state_->gradients.ready(std::exchange(waiting_, {}));
  }
  void end_backward() override {
    state_->gradients.epilogue();
    SubmoduleHooks::end_backward();
  }
  void step() override {
    release_left_behind();  // _partition_all_parameters
    state_->gradients.step([&](ParameterId p) { return state_->coordinator.shard(p); });
    state_->coordinator.post_step();
  }

 private:
  Zero3Hooks(Program& program, std::unique_ptr<Zero3State> state) : SubmoduleHooks(program.job, state->tree), state_(std::move(state)) {}
  void fetch_sub_module(std::int32_t s) override { state_->coordinator.fetch_sub_module(s); }
  void release_sub_module(std::int32_t s, bool saved) override { state_->coordinator.release_sub_module(s, saved); }
  void drop_saved(std::int32_t s) override { state_->coordinator.drop_saved(s); }

  std::unique_ptr<Zero3State> state_;
  ParameterId waiting_;  // a bias whose weight comes first
};

/// AutoEP with ZeRO-3 (docs/code-docs/source/moe.rst): neither MiCS nor hpZ nor quantised gradients.
void check_experts(const Job& job, Problems& problems) {
  const Options& options = job.strategy.options;
  check_expert_parallel(job, job.world_size, problems);
  if (options.integer("expert_parallel_size", 1) == 1) return;
  if (options.integer("zero_hpz_partition_size", 1) > 1)
    problems.add(options.where("zero_hpz_partition_size"), "zero3: experts split over ranks exclude zero_hpz_partition_size");
  if (options.boolean("zero_quantized_gradients", false))
    problems.add(options.where("zero_quantized_gradients"), "zero3: experts split over ranks exclude zero_quantized_gradients");
}

void divides_nodes(const Job& job, Problems& problems) {
  if (zero3_config(job).shard % job.gpus_per_node != 0)
    problems.add(
        job.strategy.options.where("mics_hierarchical_params_gather"),
        "mics_hierarchical_params_gather: a shard group must be a whole number of nodes of " + std::to_string(job.gpus_per_node) + " GPUs");
}

void check_zero3(const Job& job, Problems& problems) {
  const Options& options = job.strategy.options;
  const auto divides = [&](const char* name, std::int64_t whole, const char* what) {
    const std::int64_t size = options.integer(name, 1);
    if (whole % size != 0)
      problems.add(options.where(name), std::string(name) + ": " + std::to_string(size) + " does not divide the " + what + " of " +
                                            std::to_string(whole) + " ranks");
  };
  divides("mics_shard_size", job.world_size, "world");
  divides("zero_hpz_partition_size", job.world_size, "world");
  check_experts(job, problems);
  if (options.boolean("mics_hierarchical_params_gather", false) && zero3_config(job).shard > job.gpus_per_node)
    divides_nodes(job, problems);
  if (is_mics(job) && options.integer("mics_shard_size", job.world_size) < job.world_size &&
      job.training.offload.optimizer != OffloadTarget::none)
    problems.add({}, "mics: local sharding has no support for CPU offloading",
                 {"use offload: none, or mics_shard_size of the whole world"});
}

std::string zero3_differs(const Job& job) {
  if (!job.training.warm) return "the first micro-batch records the trace: every use is gathered, nothing is retained";
  const Zero3Config config = zero3_config(job);
  if (config.quantized_weights || config.quantized_gradients) return "ZeRO++ sends quantised weights or gradients";
  if (config.hpz > 1) return "after the first forward gathers stay inside the secondary partition (hpZ)";
  return "parameters still live at the end of forward are not gathered again; persistent ones are gathered once a step";
}

std::vector<std::string> zero3_without_effect(const Job& job) {
  std::vector<std::string> warnings;
  const Options& options = job.strategy.options;
  for (const char* name : {"allgather_bucket_size", "round_robin_gradients"})
    if (options.given(name)) warnings.push_back(job.strategy.name + ": " + name + " has no effect at stage 3");
  if (is_mics(job)) {
    for (const char* name : {"zero_hpz_partition_size", "zero_quantized_weights"})
      if (options.given(name)) warnings.push_back("mics: " + std::string(name) + " has no effect: MiCS gathers in its own way");
    if (options.boolean("mics_hierarchical_params_gather", false) && !zero3_config(job).hierarchical_gather)
      warnings.push_back("mics: mics_hierarchical_params_gather has no effect: a shard group lies inside one node");
  } else if (options.given("zero_hpz_partition_size") && options.integer("zero_hpz_partition_size", 1) == 1) {
    warnings.push_back("zero3: zero_hpz_partition_size has no effect: a secondary partition of one rank is none");
  }
  if (options.boolean("zero_quantized_gradients", false) && job.world_size <= job.gpus_per_node)
    warnings.push_back(job.strategy.name + ": zero_quantized_gradients has no effect on one node");
  warn_expert_parallel(job, warnings);
  if (!job.training.optimizer.set_to_none)
    warnings.push_back(job.strategy.name + ": zero_grad has no effect: DeepSpeed sets gradients to none");
  return warnings;
}

std::vector<OptionSpec> zero3_options() {
  const auto number = [](const char* name, const char* fallback, const char* help, double minimum) {
    return OptionSpec{.name = name, .kind = OptionKind::integer, .fallback = fallback, .help = help, .words = {}, .minimum = minimum};
  };
  const auto elements = [&](const char* name, const char* fallback, const char* help) { return number(name, fallback, help, 0); };
  const auto flag = [](const char* name, const char* fallback, const char* help) {
    return OptionSpec{.name = name, .kind = OptionKind::boolean, .fallback = fallback, .help = help, .words = {}};
  };
  return {elements("stage3_prefetch_bucket_size", "50000000", "elements gathered ahead in one call"),
          elements("stage3_param_persistence_threshold", "100000", "parameters of at most so many elements stay gathered"),
          elements("stage3_max_live_parameters", "1000000000", "elements gathered at once before prefetching stops"),
          elements("stage3_max_reuse_distance", "1000000000", "a parameter used again within so many elements is not released"),
          elements("sub_group_size", "1000000000", "elements of the partition that one optimizer step handles"),
          elements("reduce_bucket_size", "500000000", "elements of gradients reduced together; allocated for life"),
          flag("overlap_comm", "true", "reduce on a stream of its own"),
          flag("reduce_scatter", "true", "false: all-reduce buckets that hold their gradients contiguously"),
          number("zero_hpz_partition_size", "1", "ZeRO++: ranks of the secondary partition", 1),
          flag("zero_quantized_weights", "false", "ZeRO++: gather int8 weights and scales"),
          flag("zero_quantized_gradients", "false", "ZeRO++: reduce int4 gradients in two all-to-all hops"),
          elements("allgather_bucket_size", "500000000", "no effect at stage 3"),
          flag("contiguous_gradients", "true",
               "move gradients into one bucket; false: none is allocated, and every bucket is reduce-scattered"),
          flag("memory_efficient_linear", "true", "false: linear layers keep their gathered weights from forward to backward"),
          flag("round_robin_gradients", "false", "no effect at stage 3")};
}

/// ZeRO++ with parameters kept whole inside each node.
OptionSets secondary_partitions(std::int64_t nodes, std::int64_t gpus_per_node) {
  if (nodes == 1) return {};
  return {{"zero_hpz_partition_size=" + std::to_string(gpus_per_node)}};
}

std::int64_t mics_replicas(const Job& job) { return job.world_size / job.strategy.options.integer("mics_shard_size", job.world_size); }

}  // namespace

StrategyEntry zero3_strategy() {
  return {.info = {.name = "zero3",
                   .summary = "Parameters, gradients and states partitioned parameter by parameter (DeepSpeed stage 3)",
                   .stack = "deepspeed",
                   .library = "DeepSpeed {} (runtime/zero/stage3.py)",
                   .releases = {{"0.14.5", "the oldest that is modelled"},
                                {"0.19.3",
                                 "what gets no gradient of its input (the embedding) is released at the end of backward, not at the step"},
                                {"0.19.6", "nothing else: recorded"}},
                   .options = with_expert_parallel_options(zero3_options()),
                   .facts = {.library = Library::deepspeed,
                             .stage = 3,
                             .names_stage = true,
                             .checkpoints = CheckpointWriter::deepspeed,
                             .offload = OffloadUnit::optimizer,
                             .variants = secondary_partitions}},
          .make = [](Program& program) -> std::unique_ptr<Hooks> {
            return with_expert_parallel(program, std::make_unique<Zero3Hooks>(program));
          },
          .check = check_zero3,
          .differs_because = zero3_differs,
          .warnings = zero3_without_effect};
}

StrategyEntry mics_strategy() {
  std::vector<OptionSpec> options = zero3_options();
  options.insert(options.begin(), {.name = "mics_shard_size",
                                   .kind = OptionKind::integer,
                                   .fallback = "the world",
                                   .help = "ranks of a shard group",
                                   .words = {},
                                   .minimum = 1});
  options.insert(options.begin() + 1, {.name = "mics_hierarchical_params_gather",
                                       .kind = OptionKind::boolean,
                                       .fallback = "false",
                                       .help = "gather between nodes first, then inside them",
                                       .words = {}});
  return {.info = {.name = "mics",
                   .summary = "ZeRO-3 within shard groups, gradients all-reduced between them (DeepSpeed MiCS)",
                   .stack = "deepspeed",
                   .library = "DeepSpeed {} (runtime/zero/mics.py)",
                   .releases = {{"0.14.5", "the oldest that is modelled"},
                                {"0.18.9", "nothing; 0.19.6 hangs with replicas, and 0.19.8 has no MiCS any more"}},
                   .options = std::move(options),
                   .facts = {.library = Library::deepspeed,
                             .stage = 3,
                             .superseded_by = "zero3",
                             .checkpoints = CheckpointWriter::deepspeed,
                             .on_one_rank = false,
                             .replicas = mics_replicas}},
          .make = [](Program& program) -> std::unique_ptr<Hooks> { return std::make_unique<Zero3Hooks>(program); },
          .check = check_zero3,
          .differs_because =
              [](const Job&) {
                return std::string("shard groups are gathered without retained parameters twice; shards are all-reduced over replicas");
              },
          .warnings = zero3_without_effect};
}

}  // namespace shardsim
