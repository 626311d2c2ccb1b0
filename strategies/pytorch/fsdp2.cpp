// SPDX-License-Identifier: Apache-2.0
// torch.distributed.fsdp.fully_shard (FSDP2): one communication group for each wrapped module, parameters sharded along dimension 0.
// Source: torch/distributed/fsdp/_fully_shard/{_fsdp_param_group,_fsdp_collectives,_fsdp_state,_fsdp_param}.py; the verbs are theirs.
#include <algorithm>

#include "strategies/pytorch/fsdp2_groups.hpp"
#include "strategies/strategy_table.hpp"

namespace shardsim {
namespace {

class Fsdp2 final : public Hooks {
 public:
  explicit Fsdp2(Program& program)
      : build_(program.build), config_(fsdp2_config(program.job)), groups_(program, config_), comm_(groups_.comm()) {}

  // [Note: root pre-forward] The all-gather streams wait for the default stream once, in the outermost pre-forward: no all-gather of a
  // micro-batch starts before the optimizer, or the previous backward, is done with the parameters.
  void begin_forward(std::int32_t micro_batch) override {
    groups_.begin_micro_batch(micro_batch);
    post_forward_order_.clear();
    build_.wait_stream(comm_.all_gather_copy_in, ScheduleBuilder::compute_stream());
    build_.wait_stream(comm_.all_gather, ScheduleBuilder::compute_stream());
    if (ParamGroup* root = groups_.root()) {
      groups_.unshard(*root, Phase::forward);
      groups_.wait_for_unshard(*root, Phase::forward);
    }
  }

  void pre_forward(std::int32_t layer) override {
    ParamGroup* group = groups_.entered_at(layer);
    if (!group || group == groups_.root()) return;
    build_.call(HostCall::fsdp_pre_forward);
    groups_.unshard(*group, Phase::forward);
    groups_.wait_for_unshard(*group, Phase::forward);
    for (std::int64_t ahead = 1; ahead <= config_.forward_prefetch; ++ahead)
      if (ParamGroup* next = groups_.neighbour(*group, ahead)) groups_.unshard(*next, Phase::forward);
  }

  void post_forward(std::int32_t layer) override {
    ParamGroup* group = groups_.left_at(layer);
    if (!group || group == groups_.root()) return;
    build_.call(HostCall::fsdp_post_forward);
    groups_.reshard_after_forward(*group);
    post_forward_order_.push_back(group);
  }

  // Routed experts under expert parallelism are a group of their own around one module.
  void pre_module_forward(std::int32_t layer, std::int32_t module, Pass pass) override {
    ParamGroup* group = groups_.experts_at(layer, module);
    if (!group) return;
    // A recomputed module finds its gather under way, prefetched by its block, and is not resharded before its backward.
    build_.call(HostCall::fsdp_pre_forward);
    const Phase phase = pass == Pass::recompute ? Phase::backward : Phase::forward;
    groups_.unshard(*group, phase);
    groups_.wait_for_unshard(*group, phase);
  }
  void post_module_forward(std::int32_t layer, std::int32_t module, Pass pass) override {
    ParamGroup* group = groups_.experts_at(layer, module);
    if (!group || pass == Pass::recompute) return;
    build_.call(HostCall::fsdp_post_forward);
    groups_.reshard_after_forward(*group);
    post_forward_order_.push_back(group);
  }
  void pre_module_backward(std::int32_t layer, std::int32_t module) override {
    if (ParamGroup* group = groups_.experts_at(layer, module)) pre_backward_group(*group);
  }
  void post_module_backward(std::int32_t layer, std::int32_t module) override {
    if (ParamGroup* group = groups_.experts_at(layer, module)) post_backward_group(*group);
  }

  void end_forward() override {
    if (ParamGroup* root = groups_.root()) {
      groups_.reshard_after_forward(*root);
      post_forward_order_.push_back(root);
    }
    groups_.finish_forward();
  }

  void begin_backward() override {
    ParamGroup* root = groups_.root();
    if (!root) return;
    pre_backward_group(*root);
  }

  void pre_backward(std::int32_t layer) override {
    ParamGroup* group = groups_.left_at(layer);
    if (group && group != groups_.root()) pre_backward_group(*group);
  }

  void produce_gradient(ParameterId p) override { groups_.produce_gradient(p); }

  void post_backward(std::int32_t layer) override {
    ParamGroup* group = groups_.entered_at(layer);
    if (!group || group == groups_.root() || groups_.inputs_need_no_gradient(*group)) return;
    post_backward_group(*group);
  }

  /// The root's final callback: groups whose post-backward has not run (their inputs need no gradient), root first, each followed by a wait
  /// of the default stream on everything reduced so far.
  void end_backward() override {
    for (ParamGroup* group : groups_.in_module_order()) {
      if (!group->post_backward_done) post_backward_group(*group);
      groups_.wait_for_post_reduce();
    }
    groups_.finish_backward();
  }

  void step() override { groups_.step(); }

 private:
  void post_backward_group(ParamGroup& group) {
    build_.call(HostCall::fsdp_post_backward);
    groups_.post_backward(group);
  }

  void pre_backward_group(ParamGroup& group) {
    build_.call(HostCall::fsdp_pre_backward);
    groups_.unshard(group, Phase::backward);
    groups_.wait_for_unshard(group, Phase::backward);
    // set_modules_to_backward_prefetch is called on blocks; the root keeps the implicit order, one group ahead.
    const std::int64_t last = &group == groups_.root() ? 1 : config_.backward_prefetch;
    for (std::int64_t ahead = 1; ahead <= last; ++ahead) prefetch(group, ahead);
  }

  /// Reverse post-forward order. The root's own entry is the last one, so its pre-backward prefetches the last block.
  void prefetch(const ParamGroup& group, std::int64_t ahead) {
    const auto found = std::find(post_forward_order_.begin(), post_forward_order_.end(), &group);
    const auto index = found - post_forward_order_.begin() - ahead;
    if (found == post_forward_order_.end() || index < 0) return;
    groups_.unshard(*post_forward_order_[static_cast<std::size_t>(index)], Phase::backward);
  }

  ScheduleBuilder& build_;
  Fsdp2Config config_;
  ParamGroups groups_;
  const CommContext& comm_;
  std::vector<ParamGroup*> post_forward_order_;
};

void check_fsdp2(const Job& job, Problems& problems) {
  const Options& options = job.strategy.options;
  check_expert_parallel(job, job.world_size / std::max<std::int64_t>(1, options.integer("replicate", 1)), problems);
  const std::string reshard = options.word("reshard_after_forward", "true");
  const std::int64_t shard_size = job.world_size / std::max<std::int64_t>(1, options.integer("replicate", 1));
  if (const auto size = reshard_size(reshard); !size)
    problems.add(options.where("reshard_after_forward"), "'" + reshard + "' is not true, false or a number of ranks");
  else if (*size > 1 && shard_size % *size != 0)
    problems.add(options.where("reshard_after_forward"),
                 "reshard_after_forward " + reshard + " does not divide the shard group of " + std::to_string(shard_size) + " ranks");
}

/// Options whose condition does not hold in this job.
std::vector<std::string> fsdp2_without_effect(const Job& job) {
  const Options& options = job.strategy.options;
  const Fsdp2Config c = fsdp2_config(job);
  std::vector<std::string> warnings;
  const auto unread = [&](const char* option, bool holds, const char* why) {
    if (holds && options.given(option)) warnings.push_back("fsdp2: " + std::string(option) + " has no effect: " + why);
  };
  const bool one_micro_batch = job.training.gradient_accumulation_steps == 1;
  unread("no_sync", true, "FSDP2 modules have none; use requires_gradient_sync");
  for (const char* option : {"requires_gradient_sync", "reshard_after_backward"})
    unread(option, one_micro_batch, "there is one micro-batch a step");
  unread("requires_all_reduce", one_micro_batch || c.replicate == 1,
         c.replicate == 1 ? "nothing is replicated" : "there is one micro-batch a step");
  unread("unshard_in_backward", !c.torchtitan_wrapping, "the embedding has a group of its own under wrap: torchtitan only");
  unread("wrap", c.torchtitan_wrapping && !job.model->tied.empty(), "the head shares the embedding's weight, so both stay in the root");
  warn_expert_parallel(job, warnings);
  for (const char* option : {"separate_reduce_scatter_group", "forward_prefetch", "backward_prefetch", "unshard_in_backward"})
    unread(option, c.shard == 1, "a shard group of one rank communicates nothing");
  if (options.word("reshard_after_forward", "") == "1")
    warnings.push_back("fsdp2: reshard_after_forward 1 means one rank: parameters stay gathered, as with false");
  return warnings;
}

std::string fsdp2_differs(const Job& job) {
  const Fsdp2Config config = fsdp2_config(job);
  const DType parameters = job.training.precision.parameters;
  if (size_of(config.reduce) > size_of(parameters))
    return "gradients are reduced in " + std::string(name_of(config.reduce)) + "; the root is gathered once";
  if (config.reshard == 0) return "parameters stay gathered after forward: one all-gather a micro-batch";
  if (!config.sync_every_micro_batch && job.training.gradient_accumulation_steps > 1)
    return "gradients are reduced in the last micro-batch only";
  return "the root is gathered once, not twice; shards are padded to equal rows";
}

OptionSets fsdp2_variants(std::int64_t nodes, std::int64_t) {
  OptionSets sets{{"reshard_after_forward=false"}};
  if (nodes > 1) sets.push_back({"replicate=" + std::to_string(nodes)});
  return sets;
}

}  // namespace

StrategyEntry fsdp2_strategy() {
  return {
      .info = {.name = "fsdp2",
               .summary = "Parameters, gradients and states sharded along dimension 0, gathered module by module",
               .stack = "torchtitan",
               .library = "PyTorch {} (torch.distributed.fsdp.fully_shard)",
               .releases = {{"2.13", "the oldest that is modelled"},
                            {"2.15",
                             "without a reduce_dtype gradients are reduced in the dtype of the stored parameters, before it in that they "
                             "are computed in"}},
               .options = with_expert_parallel_options(
                   {{.name = "reshard_after_forward",
                     .kind = OptionKind::word,
                     .fallback = "true",
                     .help = "true, false, or a number of ranks to reshard to",
                     .words = {}},
                    {.name = "reshard_root_after_forward",
                     .kind = OptionKind::boolean,
                     .fallback = "false",
                     .help = "the root too (torchtitan: norm and head), as if wrapped with reshard_after_forward"},
                    {.name = "replicate",
                     .kind = OptionKind::integer,
                     .fallback = "1",
                     .help = "replicas (HSDP); the shard group is the world divided by it",
                     .words = {},
                     .minimum = 1},
                    {.name = "forward_prefetch",
                     .kind = OptionKind::integer,
                     .fallback = "0",
                     .help = "groups unsharded ahead by set_modules_to_forward_prefetch"},
                    {.name = "backward_prefetch",
                     .kind = OptionKind::integer,
                     .fallback = "1",
                     .help = "groups unsharded ahead in backward; more than 1: by set_modules_to_backward_prefetch",
                     .words = {},
                     .minimum = 1},
                    {.name = "separate_reduce_scatter_group",
                     .kind = OptionKind::boolean,
                     .fallback = "false",
                     .help = "reduce-scatter on a communicator of its own"},
                    {.name = "reduce_scatter_max_input_buffers",
                     .kind = OptionKind::integer,
                     .fallback = "1",
                     .help = "reduce-scatter inputs retained before the default stream waits",
                     .words = {},
                     .minimum = 1},
                    {.name = "requires_gradient_sync",
                     .kind = OptionKind::boolean,
                     .fallback = "true",
                     .help = "false: reduce in the last micro-batch only, unsharded gradients kept"},
                    {.name = "requires_all_reduce",
                     .kind = OptionKind::boolean,
                     .fallback = "true",
                     .help = "false: HSDP all-reduces in the last micro-batch only"},
                    {.name = "reshard_after_backward",
                     .kind = OptionKind::boolean,
                     .fallback = "true",
                     .help = "false: parameters stay gathered between micro-batches"},
                    {.name = "no_sync", .kind = OptionKind::boolean, .fallback = "", .help = "no effect: FSDP2 modules have none"},
                    {.name = "unshard_in_backward",
                     .kind = OptionKind::boolean,
                     .fallback = "true",
                     .help = "false: the embedding's own group is not gathered in backward"},
                    {.name = "wrap",
                     .kind = OptionKind::word,
                     .fallback = "blocks",
                     .help = "blocks: the rest is the root; torchtitan: embedding, and norm with head, are groups of their own",
                     .words = {"blocks", "torchtitan"}},
                    {.name = "reduce_dtype",
                     .kind = OptionKind::word,
                     .fallback = "",
                     .help = "dtype of reductions; default: training.precision.reduce, else the parameters'",
                     .words = {"bf16", "fp16", "fp32"}}}),
               .facts = {.stage = 3,
                         .muon = MuonSupport::row_shards,
                         .offload = OffloadUnit::parameters_and_optimizer,
                         .variants = fsdp2_variants}},
      .make = [](Program& program) -> std::unique_ptr<Hooks> { return with_expert_parallel(program, std::make_unique<Fsdp2>(program)); },
      .check = check_fsdp2,
      .differs_because = fsdp2_differs,
      .reduction_dtype = fsdp2_reduction_dtype,
      .warnings = fsdp2_without_effect};
}

}  // namespace shardsim
