// SPDX-License-Identifier: Apache-2.0
// Options of DeepSpeed's ZeRO stages 1 and 2, what it asserts about them, and which ones its code does not read.
// Source: DeepSpeed runtime/zero/config.py, runtime/zero/stage_1_and_2.py, runtime/engine.py, runtime/base_optimizer.py.
#include "strategies/deepspeed/zero12.hpp"
#include "strategies/shared/expert_parallel.hpp"

namespace shardsim {
namespace {

/// DeepSpeed always keeps a partition of its own that the optimizer updates: fp32, or bf16 with bf16_optimizer_states.
DType master_dtype(const Precision& precision) {
  return precision.master.value_or(precision.moments == DType::bf16 ? DType::bf16 : DType::fp32);
}

DType dtype_option(const Options& options, const char* name, DType fallback) {
  return dtype_from(options.word(name, "")).value_or(fallback);
}

std::string name_of_strategy(int stage) { return stage == 1 ? "zero1" : "zero2"; }

}  // namespace

Zero12Config zero12_config(const Job& job, int stage) {
  const Options& options = job.strategy.options;
  const Precision& precision = job.training.precision;
  Zero12Config c;
  c.stage = stage;
  c.offload = job.training.offload.optimizer != OffloadTarget::none;
  c.reduce_bucket_size = Elements{options.integer("reduce_bucket_size", c.reduce_bucket_size.value())};
  c.overlap_comm = options.boolean("overlap_comm", c.overlap_comm);
  c.contiguous_gradients = options.boolean("contiguous_gradients", c.contiguous_gradients) || c.offload;
  c.reduce_scatter = options.boolean("reduce_scatter", c.reduce_scatter);
  c.use_multi_rank_bucket_allreduce = options.boolean("use_multi_rank_bucket_allreduce", c.use_multi_rank_bucket_allreduce);
  c.round_robin_gradients = options.boolean("round_robin_gradients", c.round_robin_gradients);
  c.model = precision.parameters;
  c.accumulation = dtype_option(options, "grad_accum_dtype", precision.gradients);
  c.communication = dtype_option(options, "communication_data_type", precision.reduce.value_or(c.model));
  c.master = master_dtype(precision);
  c.check_grad_overflow =
      c.model == DType::fp16 || (c.model == DType::bf16 && options.boolean("check_grad_overflow", since(job, "0.19.3")));
  c.tests_extremes = since(job, "0.19.6");
  c.buckets_on_first_gradient = since(job, "0.16.5");
  return c;
}

bool uses_bf16_optimizer(const Zero12Config& config) {
  return config.stage == 1 && config.model == DType::bf16 && config.accumulation == DType::fp32 && !config.offload;
}

bool all_reduces(const Zero12Config& config) {
  return uses_bf16_optimizer(config) || !config.contiguous_gradients || !config.reduce_scatter || config.use_multi_rank_bucket_allreduce;
}

std::vector<Release> zero12_releases() {
  return {{"0.14.5",
           "the oldest that is modelled: bucket buffers are allocated before backward, bf16 gradients are not searched for inf and nan"},
          {"0.16.5", "bucket buffers are allocated when the first gradient comes"},
          {"0.17.1", "check_grad_overflow: bf16 gradients are searched for inf and nan if asked for"},
          {"0.19.3", "bf16 gradients are searched by default"},
          {"0.19.6", "the search needs no temporaries (11 bytes an element before): recorded"}};
}

std::vector<OptionSpec> zero12_options(int stage) {
  const std::vector<std::string> dtypes{"fp32", "bf16", "fp16"};
  return with_expert_parallel_options(
      {{.name = "reduce_bucket_size",
        .kind = OptionKind::integer,
        .fallback = "500000000",
        .help = "elements reduced at once",
        .minimum = 1},
       {.name = "allgather_bucket_size",
        .kind = OptionKind::integer,
        .fallback = "500000000",
        .help = "not read where torch has all_gather_into_tensor",
        .minimum = 1},
       {.name = "overlap_comm",
        .kind = OptionKind::boolean,
        .fallback = "false",
        .help = "reduce from backward hooks, on a stream of its own"},
       {.name = "contiguous_gradients",
        .kind = OptionKind::boolean,
        .fallback = "true",
        .help = "copy gradients into one bucket buffer as they come"},
       {.name = "reduce_scatter",
        .kind = OptionKind::boolean,
        .fallback = "true",
        .help = "average slices for their owners; false: one plain all-reduce a bucket"},
       {.name = "use_multi_rank_bucket_allreduce",
        .kind = OptionKind::boolean,
        .fallback = "true",
        .help = "all owners' slices in one all-reduce; false: one reduce an owner"},
       {.name = "round_robin_gradients",
        .kind = OptionKind::boolean,
        .fallback = "false",
        .help = "consecutive gradients go to different owners"},
       {.name = "allgather_partitions", .kind = OptionKind::boolean, .fallback = "true", .help = "not read"},
       {.name = "grad_accum_dtype",
        .kind = OptionKind::word,
        .help = stage == 1 ? "fp32 with bf16 parameters: BF16_Optimizer" : "not read at stage 2",
        .words = dtypes},
       {.name = "communication_data_type",
        .kind = OptionKind::word,
        .help = "on the wire of reductions; default: the model's",
        .words = dtypes},
       {.name = "check_grad_overflow",
        .kind = OptionKind::boolean,
        .fallback = "true",
        .help = "bf16: look for inf and nan, all-reduce the flag (before 0.19.3 only if asked for, before 0.17.1 never)"}});
}

/// _configure_moe_settings. At stage 1 DeepSpeed only warns that contiguous_gradients: false is untested; there it would reduce experts
/// over all ranks.
static void check_experts(const Job& job, int stage, Problems& problems) {
  const Options& options = job.strategy.options;
  check_expert_parallel(job, job.world_size, problems);
  if (options.integer("expert_parallel_size", 1) == 1 || uses_bf16_optimizer(zero12_config(job, stage))) return;
  for (const char* option : {"contiguous_gradients", "reduce_scatter"})
    if (!options.boolean(option, true))
      problems.add(options.where(option), name_of_strategy(stage) + ": " + option + " must be true for experts that are split over ranks");
}

void check_zero12(const Job& job, int stage, Problems& problems) {
  const Precision& precision = job.training.precision;
  const std::string name = name_of_strategy(stage);
  check_experts(job, stage, problems);
  if (job.training.offload.optimizer == OffloadTarget::nvme)
    problems.add({}, name + ": offload of the optimizer to nvme needs ZeRO stage 3", {"use offload: {optimizer: cpu}, or strategy zero3"});
  if (job.training.optimizer.kind == OptimizerKind::muon && job.training.offload.optimizer != OffloadTarget::none &&
      job.strategy.options.boolean("reduce_scatter", true))
    problems.add({}, name + ": muon with reduce_scatter cannot offload the optimizer: offload keeps only slices of matrices",
                 {"use reduce_scatter: false, or offload: none"});
  if (master_dtype(precision) == DType::bf16 && precision.moments != DType::bf16 && job.training.offload.optimizer == OffloadTarget::none)
    problems.add({}, name + ": a bf16 master copy with fp32 moments needs offload of the optimizer (bf16_master_weights_and_grads)",
                 {"use precision pure-bf16, master: fp32, or offload: {optimizer: cpu}"});
  if (master_dtype(precision) == DType::fp16 && job.training.offload.optimizer == OffloadTarget::none)
    problems.add({}, name + ": an fp16 master copy needs offload of the optimizer (fp16_master_weights_and_grads)",
                 {"use master: fp32, or offload: {optimizer: cpu}"});
}

std::vector<std::string> zero12_without_effect(const Job& job, int stage) {
  const Options& options = job.strategy.options;
  const Zero12Config c = zero12_config(job, stage);
  const std::string name = name_of_strategy(stage);
  std::vector<std::string> warnings;
  const auto unread = [&](const char* option, const std::string& why) {
    if (options.given(option)) warnings.push_back(name + ": " + option + " has no effect: " + why);
  };
  unread("allgather_bucket_size", "each param group is gathered at once by all_gather_into_tensor");
  unread("allgather_partitions", "DeepSpeed does not read it");
  if (job.training.offload.parameters != OffloadTarget::none)
    warnings.push_back(name + ": offload of parameters has no effect: it needs ZeRO stage 3");
  if (!job.training.optimizer.set_to_none) warnings.push_back(name + ": zero_grad has no effect: DeepSpeed sets gradients to none");
  warn_expert_parallel(job, warnings);
  if (uses_bf16_optimizer(c)) {
    for (const char* option : {"reduce_bucket_size", "overlap_comm", "contiguous_gradients", "reduce_scatter",
                               "use_multi_rank_bucket_allreduce", "round_robin_gradients", "check_grad_overflow"})
      unread(option, "BF16_Optimizer does not read it");
    return warnings;
  }
  if (stage == 2 && c.accumulation != c.model)
    warnings.push_back("zero2: the accumulation dtype has no effect: gradients accumulate in the model's dtype");
  if (!c.contiguous_gradients)
    for (const char* option : {"reduce_scatter", "use_multi_rank_bucket_allreduce"})
      unread(option, "without contiguous_gradients every bucket is all-reduced whole");
  if (c.offload && !options.boolean("contiguous_gradients", true)) unread("contiguous_gradients", "CPU offload requires it to be true");
  if (c.contiguous_gradients && !c.reduce_scatter) unread("use_multi_rank_bucket_allreduce", "reduce_scatter is off");
  if (c.model != DType::bf16) unread("check_grad_overflow", c.model == DType::fp16 ? "fp16 is always checked" : "fp32 is never checked");
  if (job.world_size == 1) unread("round_robin_gradients", "there is one rank");
  return warnings;
}

}  // namespace shardsim
