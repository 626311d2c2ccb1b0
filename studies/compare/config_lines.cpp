// SPDX-License-Identifier: Apache-2.0
// SOURCE of the words: the configuration references of DeepSpeed 0.19, accelerate 1.x, torchtitan (job TOML), PyTorch 2.13 and
// Megatron-Core.
#include "studies/compare/config_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace shardsim {
namespace {

enum class Tool : std::uint8_t { pytorch, accelerate, torchtitan, deepspeed, megatron };

Tool tool_of(const Scenario& scenario) {
  const StrategyFacts& facts = facts_of(scenario.strategy.name);
  switch (facts.library) {
    case Library::deepspeed:
      return Tool::deepspeed;
    case Library::megatron:
      return Tool::megatron;
    case Library::olmo_core:
      return Tool::pytorch;
    case Library::pytorch:
      break;
  }
  if (facts.stage < 3) return Tool::pytorch;
  return facts.superseded_by.empty() ? Tool::torchtitan : Tool::accelerate;
}

/// How a key is written by each tool; {} stands for the value. Empty: the tool has no word for it.
struct Word {
  std::string_view key, value;  ///< value: only for that one; empty: for any
  std::string_view pytorch, accelerate, torchtitan, deepspeed, megatron;
};

constexpr std::string_view segments = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (environment)";
constexpr std::string_view liger = "use_liger_kernel: true (transformers' TrainingArguments)";

constexpr std::array<Word, 45> config_words{{
    {"cluster.nodes", "", "torchrun --nnodes {}", "num_machines: {}", "torchrun --nnodes {}", "deepspeed --num_nodes {}",
     "torchrun --nnodes {}"},
    {"cluster.gpus_per_node", "", "torchrun --nproc-per-node {}", "num_processes: {} a node", "torchrun --nproc-per-node {}",
     "deepspeed --num_gpus {}", "torchrun --nproc-per-node {}"},
    {"training.micro_batch_size", "", "DataLoader(batch_size={})", "per_device_train_batch_size: {}", "[training] local_batch_size = {}",
     "\"train_micro_batch_size_per_gpu\": {}", "--micro-batch-size {}"},
    {"training.gradient_accumulation_steps", "", "{} micro-batches a step, no_sync() around all but the last",
     "gradient_accumulation_steps: {}", "[training] global_batch_size = local_batch_size x ranks x {}",
     "\"gradient_accumulation_steps\": {}", "--global-batch-size = micro-batch x ranks x {}"},
    {"training.activation_checkpointing", "none", "no checkpoint()", "fsdp_activation_checkpointing: false",
     "[activation_checkpoint] mode = \"none\"", "model.gradient_checkpointing_disable()", "no --recompute-activations"},
    {"training.activation_checkpointing", "full", "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
     "fsdp_activation_checkpointing: true", "[activation_checkpoint] mode = \"full\"", "model.gradient_checkpointing_enable()",
     "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"},
    {"training.activation_checkpointing", "selective_ops", "torch.utils.checkpoint with a selective policy",
     "torch.utils.checkpoint with a selective policy", "[activation_checkpoint] mode = \"selective\", selective_ac_option = \"op\"",
     "torch.utils.checkpoint with a selective policy", ""},
    {"training.activation_checkpointing", "core_attention", "", "", "", "", "--recompute-activations"},
    {"training.allocator", "", segments, segments, segments, segments, segments},
    {"training.compile", "true", "torch.compile(model)", "dynamo_config: {dynamo_backend: INDUCTOR}", "[compile] enable = true",
     "\"compile\": {\"deepcompile\": false} with engine.compile()", ""},
    {"training.loss", "fused", liger, liger, liger, liger, "--cross-entropy-loss-fusion"},
    {"training.loss", "fused_linear", liger, liger, liger, liger, "--cross-entropy-loss-fusion"},
    {"training.loss", "", "chunk the logits: cross entropy over {} of the tokens", "chunk the logits: cross entropy over {} of the tokens",
     "chunked loss, {}", "chunk the logits: {}", ""},
    {"training.attention", "flash", "F.scaled_dot_product_attention", "attn_implementation: flash_attention_2",
     "F.scaled_dot_product_attention (the default)", "attn_implementation: flash_attention_2", "--use-flash-attn"},
    {"training.optimizer.implementation", "fused", "torch.optim.AdamW(..., fused=True)", "optim: adamw_torch_fused",
     "[optimizer] implementation = \"fused\"", "\"optimizer\": {\"type\": \"AdamW\"} (FusedAdam)", ""},
    {"training.optimizer", "{name: adamw, implementation: fused}", "torch.optim.AdamW(..., fused=True)", "optim: adamw_torch_fused",
     "[optimizer] implementation = \"fused\"", "\"optimizer\": {\"type\": \"AdamW\"} (FusedAdam)", ""},
    {"training.optimizer", "{name: adamw_8bit}", "bitsandbytes.optim.AdamW8bit", "optim: adamw_bnb_8bit", "bitsandbytes.optim.AdamW8bit",
     "bitsandbytes.optim.AdamW8bit", ""},
    {"training.offload", "{optimizer: cpu}", "", "", "",
     "\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true}}", "--optimizer-cpu-offload"},
    {"training.offload", "{parameters: cpu, optimizer: cpu}", "", "fsdp_offload_params: true", "[training] enable_cpu_offload = true",
     "\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": \"cpu\"}}", ""},
    {"strategy.bucket_cap_mb", "", "DistributedDataParallel(..., bucket_cap_mb={})", "ddp_bucket_cap_mb: {}", "", "", ""},
    {"strategy.gradient_as_bucket_view", "", "DistributedDataParallel(..., gradient_as_bucket_view={})", "", "", "", ""},
    {"strategy.static_graph", "", "DistributedDataParallel(..., static_graph={})", "", "", "", ""},
    {"strategy.find_unused_parameters", "", "DistributedDataParallel(..., find_unused_parameters={})", "ddp_find_unused_parameters: {}", "",
     "", ""},
    {"strategy.no_sync", "", "model.no_sync() around all micro-batches but the last: {}", "accelerator.no_sync(model): {}", "", "", ""},
    {"strategy.sharding_strategy", "", "", "fsdp_sharding_strategy: {}", "", "", ""},
    {"strategy.limit_all_gathers", "", "", "FullyShardedDataParallel(..., limit_all_gathers={})", "", "", ""},
    {"strategy.use_orig_params", "", "", "fsdp_use_orig_params: {}", "", "", ""},
    {"strategy.backward_prefetch", "", "", "fsdp_backward_prefetch: {}", "module.set_modules_to_backward_prefetch([the next {}])", "", ""},
    {"strategy.forward_prefetch", "", "", "fsdp_forward_prefetch: {}", "module.set_modules_to_forward_prefetch([the next {}])", "", ""},
    {"strategy.reshard_after_forward", "true", "", "", "[parallelism] fsdp_reshard_after_forward = \"always\"", "", ""},
    {"strategy.reshard_after_forward", "false", "", "", "[parallelism] fsdp_reshard_after_forward = \"never\"", "", ""},
    {"strategy.reshard_after_forward", "", "", "", "fully_shard(..., reshard_after_forward={})", "", ""},
    {"strategy.replicate", "", "", "device_mesh of {} replicas (HYBRID_SHARD)", "[parallelism] data_parallel_replicate_degree = {}", "",
     ""},
    {"strategy.requires_gradient_sync", "", "", "", "model.set_requires_gradient_sync({}) for all micro-batches but the last", "", ""},
    {"strategy.requires_all_reduce", "", "", "", "model.set_requires_all_reduce({}) for all micro-batches but the last", "", ""},
    {"strategy.wrap", "torchtitan", "", "", "fully_shard() for the embedding, and for norm with head, as torchtitan does", "", ""},
    {"strategy.overlap_grad_reduce", "", "", "", "", "", "--overlap-grad-reduce ({})"},
    {"strategy.overlap_param_gather", "", "", "", "", "", "--overlap-param-gather ({})"},
    {"strategy.bucket_size", "", "", "", "", "", "--ddp-bucket-size {}"},
    {"strategy.name", "ddp", "torch.nn.parallel.DistributedDataParallel", "distributed_type: MULTI_GPU",
     "[parallelism] data_parallel_replicate_degree = ranks, data_parallel_shard_degree = 1", "", ""},
    {"strategy.name", "fsdp1", "torch.distributed.fsdp.FullyShardedDataParallel", "fsdp_config: {fsdp_version: 1}", "", "", ""},
    {"strategy.name", "fsdp2", "torch.distributed.fsdp.fully_shard", "fsdp_config: {fsdp_version: 2}",
     "[parallelism] data_parallel_shard_degree = -1", "", ""},
    {"strategy.name", "zero1", "", "", "", "\"zero_optimization\": {\"stage\": 1}", ""},
    {"strategy.name", "zero2", "", "", "", "\"zero_optimization\": {\"stage\": 2}", ""},
    {"strategy.name", "zero3", "", "", "", "\"zero_optimization\": {\"stage\": 3}", ""},
}};

std::string_view spelling(const Word& word, Tool tool) {
  switch (tool) {
    case Tool::pytorch:
      return word.pytorch;
    case Tool::accelerate:
      return word.accelerate;
    case Tool::torchtitan:
      return word.torchtitan;
    case Tool::deepspeed:
      return word.deepspeed;
    case Tool::megatron:
      return word.megatron;
  }
  return {};
}

/// Python's True and False where the line is Python's.
std::string as_written(std::string_view line, const std::string& value) {
  const bool python = line.find('(') != std::string_view::npos && line.find(": {}") == std::string_view::npos;
  return python && value == "true" ? "True" : python && value == "false" ? "False" : value;
}

std::string line_of(Tool tool, const std::string& key, const std::string& value) {
  for (const Word& word : config_words) {
    if (word.key != key || (!word.value.empty() && word.value != value)) continue;
    std::string line(spelling(word, tool));
    if (const std::size_t at = line.find("{}"); at != std::string::npos) line.replace(at, 2, as_written(line, value));
    return line;
  }
  // DeepSpeed's options bear the library's own names, and all stand in one block.
  const bool option = tool == Tool::deepspeed && key.starts_with("strategy.") && key != "strategy.semantics";
  return option ? fmt::format("\"zero_optimization\": {{\"{}\": {}}}", key.substr(9), value) : std::string();
}

}  // namespace

std::string config_of(const Scenario& scenario) {
  switch (tool_of(scenario)) {
    case Tool::pytorch:
      return "the training script";
    case Tool::accelerate:
      return "accelerate's YAML";
    case Tool::torchtitan:
      return "torchtitan's TOML, or the training script";
    case Tool::deepspeed:
      return "ds_config.json";
    case Tool::megatron:
      return "Megatron's command line";
  }
  return {};
}

std::vector<std::string> config_lines(const Scenario& scenario, const std::vector<std::string>& assignments) {
  const Tool tool = tool_of(scenario);
  std::vector<std::string> lines;
  for (const std::string& assignment : assignments) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos) continue;
    std::string line = line_of(tool, assignment.substr(0, equals), assignment.substr(equals + 1));
    if (!line.empty() && std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace shardsim
