// SPDX-License-Identifier: Apache-2.0
// Megatron-LM's arguments (a shell script or a bare list), and the YAML of NeMo and Megatron-Bridge, which spell the same things alike.
// Defaults are those of megatron/training/arguments.py and of TransformerConfig.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "scenarios/importers/command_line.hpp"
#include "scenarios/importers/foreign_map.hpp"

namespace shardsim {
namespace {

/// The scalars and lists of all nested maps in one: NeMo's and Megatron-Bridge's sections do not decide what a key means.
void flatten(const ConfigNode& from, ConfigNode& into, int depth = 0) {
  for (const auto& entry : from.entries) {
    if (entry.value.kind == ConfigNode::Kind::map && depth < 8) {
      flatten(entry.value, into, depth + 1);
      continue;
    }
    const bool known = into.find(entry.key) != nullptr;
    if (!known) into.entries.push_back(entry);
  }
}

class MegatronReader {
 public:
  MegatronReader(const ConfigNode& tree, const ConfigNode& written, ScenarioDraft& draft, const ImportOptions& options)
      : draft_(draft), options_(options), written_(written), root_(&tree, "", draft) {}

  void read() {
    beside();
    model();
    batch();
    precision();
    recomputation();
    optimizer();
    strategy();
    rest();
  }

 private:
  void beside() {
    for (const char* key : {"tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size"})
      root_.refuse(key, "only data parallelism is modelled", {"1"});
    root_.without_effect({"virtual_pipeline_model_parallel_size", "num_layers_per_virtual_pipeline_stage", "sequence_parallel",
                          "tp_comm_overlap", "cp_comm_type"},
                         "of tensor, pipeline or context parallelism");
  }

  /// --swiglu and the like say which layer it is: Llama's where it is gated with RMSNorm and rotary positions, else MPT's general one.
  void model() {
    if (!options_.model.empty() || root_.take("num_layers") == nullptr) {
      facts_ = describe_model(draft_, options_, root_.take(Keys{"pretrained_model_name_or_path", "hf_model_id"}), "hf_model_id");
      return;
    }
    const auto size = [&](const Keys& keys, std::int64_t fallback) { return root_.whole(keys, 1, 1 << 24).value_or(fallback); };
    const std::int64_t layers = size("num_layers", 24), hidden = size("hidden_size", 1024), heads = size("num_attention_heads", 16);
    const bool swiglu = root_.on(Keys{"swiglu", "gated_linear_unit"}) ||
                        root_.word("activation").value_or("").find("swiglu") != std::string::npos ||
                        root_.word("activation").value_or("").find("geglu") != std::string::npos;
    const bool grouped = root_.flag("group_query_attention").value_or(true);
    const std::int64_t groups = root_.whole("num_query_groups", 1).value_or(heads), kv_heads = grouped ? groups : heads;
    const std::int64_t channels = size(Keys{"kv_channels"}, hidden / heads);
    const std::int64_t width = size("ffn_hidden_size", swiglu ? (4 * hidden * 2 / 3 / 64) * 64 : 4 * hidden);
    const std::string norm = lower(root_.word("normalization").value_or("LayerNorm"));
    const bool rms = norm.find("rms") != std::string::npos;
    const std::string positions = root_.word("position_embedding_type").value_or("learned_absolute");
    const bool rope = positions == "rope" || positions == "yarn" || root_.on("use_rotary_position_embeddings");
    const bool bias = !(root_.on("disable_bias_linear") || root_.flag("add_bias_linear") == false || root_.flag("bias") == false);
    const bool qkv_bias = bias || root_.on("add_qkv_bias");
    const bool tied = !root_.on("untie_embeddings_and_output_weights") && root_.flag("share_embeddings_and_output_weights").value_or(true);
    const bool qk_norm = root_.on("qk_layernorm");
    const std::int64_t vocabulary = this->vocabulary(),
                       longest = size(Keys{"max_position_embeddings", "seq_length", "encoder_seq_length"}, 2048);
    const auto experts = root_.whole(Keys{"num_experts", "num_moe_experts"}, 1);
    root_.without_effect({"max_position_embeddings", "rotary_base", "rotary_percent", "rotary_interleaved", "apply_rope_fusion",
                          "norm_epsilon", "layernorm_epsilon", "init_method_std", "apply_layernorm_1p", "no_masked_softmax_fusion",
                          "attention_softmax_in_fp32", "use_rope_scaling", "rope_scaling_factor", "no_rope_fusion"});
    if (experts.value_or(1) > 1) return mixture(*experts, layers, hidden, heads, kv_heads, width, vocabulary, longest, tied);
    if (swiglu && rms && rope) {
      draft_.model("hf_config",
                   fmt::format("{{model_type: {}, architectures: [{}], hidden_size: {}, num_hidden_layers: {}, num_attention_heads: {}, "
                               "num_key_value_heads: {}, head_dim: {}, intermediate_size: {}, vocab_size: {}, "
                               "max_position_embeddings: {}, tie_word_embeddings: {}, attention_bias: {}, mlp_bias: {}}}",
                               qk_norm             ? "qwen3"
                               : !bias && qkv_bias ? "qwen2"
                                                   : "llama",
                               qk_norm             ? "Qwen3ForCausalLM"
                               : !bias && qkv_bias ? "Qwen2ForCausalLM"
                                                   : "LlamaForCausalLM",
                               hidden, layers, heads, kv_heads, channels, width, vocabulary, longest, tied, bias, bias),
                   "num_layers, hidden_size, num_attention_heads ...");
    } else {
      if (channels * heads != hidden) draft_.note("heads of hidden_size / num_attention_heads");
      draft_.model("hf_config",
                   fmt::format("{{model_type: mpt, architectures: [MPTForCausalLM], d_model: {}, n_heads: {}, n_layers: {}, vocab_size: "
                               "{}, max_seq_len: {}, no_bias: {}, norm_type: {}, tie_word_embeddings: {}, "
                               "learned_pos_emb: {}, attn_config: {{attn_type: grouped_query_attention, kv_n_heads: {}, alibi: false, "
                               "rope: {}, qk_ln: {}}}, "
                               "ffn_config: {{ffn_type: {}, ffn_hidden_size: {}, ffn_act_fn: {{name: {}}}}}}}",
                               hidden, heads, layers, vocabulary, longest, !bias, rms ? "rmsnorm" : "layernorm", tied,
                               positions == "learned_absolute" && !rope, kv_heads, rope, qk_norm, swiglu ? "mptglu" : "mptmlp", width,
                               swiglu                     ? "silu"
                               : root_.on("squared_relu") ? "relu"
                                                          : "gelu"),
                   "num_layers, hidden_size, num_attention_heads ...");
    }
    facts_ = {hidden, std::min<std::int64_t>(longest, 2048)};
  }

  void mixture(std::int64_t experts, std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t kv_heads,
               std::int64_t width, std::int64_t vocabulary, std::int64_t longest, bool tied) {
    const std::int64_t top_k = root_.whole("moe_router_topk", 1).value_or(2),
                       expert_width = root_.whole("moe_ffn_hidden_size", 1).value_or(width);
    root_.refuse("moe_shared_expert_intermediate_size", "a shared expert: give the model's config.json with --model");
    root_.refuse("moe_layer_freq", "layers with and without experts: give the model's config.json with --model", {"1"});
    root_.without_effect({"moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_grouped_gemm", "moe_token_dispatcher_type",
                          "moe_permute_fusion", "moe_router_dtype", "moe_router_score_function", "moe_router_pre_softmax",
                          "moe_z_loss_coeff", "moe_input_jitter_eps", "moe_pad_expert_input_to_capacity", "moe_token_drop_policy",
                          "moe_per_layer_logging"});
    root_.not_modelled("moe_expert_capacity_factor", "tokens above the capacity are dropped: none are assumed to be");
    draft_.model(
        "hf_config",
        fmt::format(
            "{{model_type: mixtral, architectures: [MixtralForCausalLM], hidden_size: {}, num_hidden_layers: {}, num_attention_heads: {}, "
            "num_key_value_heads: {}, intermediate_size: {}, "
            "num_local_experts: {}, num_experts_per_tok: {}, vocab_size: {}, max_position_embeddings: {}, tie_word_embeddings: {}}}",
            hidden, layers, heads, kv_heads, expert_width, experts, top_k, vocabulary, longest, tied),
        "num_layers, hidden_size, num_experts ...");
    facts_ = {hidden, std::min<std::int64_t>(longest, 2048)};
  }

  /// --vocab-size, rounded up as Megatron pads it; 50,257 (GPT-2's) where the tokenizer decides.
  std::int64_t vocabulary() {
    const std::int64_t multiple = root_.whole("make_vocab_size_divisible_by", 1, 1 << 20).value_or(128);
    if (const auto padded = root_.whole("padded_vocab_size", 1, 1 << 24)) return *padded;
    const auto given = root_.whole("vocab_size", 1, 1 << 24);
    if (!given) draft_.note("a vocabulary of 50,257 tokens, GPT-2's (the tokenizer decides it: give --vocab-size)");
    return ceil_div(given.value_or(50257), multiple) * multiple;
  }

  void batch() {
    const auto micro = root_.whole("micro_batch_size", 1), global = root_.whole("global_batch_size", 1);
    const auto sequence = root_.whole(Keys{"seq_length", "encoder_seq_length", "sequence_length", "seq_len"}, 1);
    const std::int64_t nodes = root_.whole(Keys{"nnodes", "num_nodes"}, 1).value_or(0);
    std::int64_t gpus = 0;
    if (const ConfigNode* devices = root_.take("devices");
        devices != nullptr && devices->kind == ConfigNode::Kind::scalar && !is_auto(devices))
      gpus = std::max<std::int64_t>(root_.whole("devices", -1).value_or(0), 0);
    gpus = root_.whole(Keys{"nproc_per_node", "gpus_per_node", "num_gpus_per_node"}, 1).value_or(gpus);
    const std::int64_t world = describe_cluster(draft_, options_, nodes, gpus, nodes > 0 || gpus > 0 ? "nnodes, nproc_per_node" : "");
    const std::int64_t accumulation = global ? std::max<std::int64_t>(*global / world / micro.value_or(1), 1) : 1;
    if (global && accumulation * world * micro.value_or(1) != *global)
      draft_.note(fmt::format("{} ranks with micro-batch {} do not give the global batch {} exactly", world, micro.value_or(1), *global));
    if (!sequence) draft_.note(fmt::format("sequences of {} tokens (not in the file)", facts_.sequence_length));
    draft_.training("sequence_length", std::to_string(sequence.value_or(facts_.sequence_length)),
                    sequence ? "seq_length" : "not in the file");
    draft_.training("micro_batch_size", std::to_string(micro.value_or(1)), micro ? "micro_batch_size" : "not in the file");
    draft_.training("gradient_accumulation_steps", std::to_string(accumulation), "from global_batch_size");
    root_.not_modelled("rampup_batch_size", "the batch grows over training: its full size is assumed");
  }

  void precision() {
    draft_.training("stack", "megatron", "what the software costs");
    const std::string named = lower(root_.word(Keys{"precision", "mixed_precision"}).value_or(""));
    const bool bf16 = root_.on("bf16") || root_.on("megatron_amp_O2") || named.find("bf16") != std::string::npos,
               fp16 = root_.on("fp16") || named.starts_with("16") || named.find("fp16") != std::string::npos;
    if (bf16) {
      draft_.training("precision", "mixed", "bf16");
    } else if (fp16) {
      draft_.training("precision", "{parameters: fp16, gradients: fp16, master: fp32}", "fp16");
    } else {
      draft_.training("precision", "fp32", "neither bf16 nor fp16");
    }
    for (const char* key : {"fp8", "fp8_format", "fp8_hybrid", "fp8_e4m3", "fp4", "fp4_format"})
      root_.not_modelled(key, "low-precision products are timed as 16-bit ones");
    root_.without_effect({"fp8_margin", "fp8_amax_history_len", "fp8_amax_compute_algo", "fp8_recipe", "fp8_param_gather", "fp8_interval",
                          "params_dtype", "autocast", "autocast_dtype", "pipeline_dtype", "transformer_engine"});
  }

  void recomputation() {
    const auto granularity = root_.word(Keys{"recompute_granularity", "activations_checkpoint_granularity"});
    const auto layers = root_.whole(Keys{"recompute_num_layers", "activations_checkpoint_num_layers"}, 0);
    const std::string method = root_.word(Keys{"recompute_method", "activations_checkpoint_method"}).value_or("");
    if (root_.on("recompute_activations") || (granularity && lower(*granularity) == "selective")) {
      draft_.training("activation_checkpointing", "core_attention", "recompute_granularity: selective");
    } else if (granularity && lower(*granularity) == "full") {
      draft_.training("activation_checkpointing", "full", "recompute_granularity: full");
      if (layers.value_or(1) > 1)
        draft_.note(fmt::format("every layer by itself is recomputed (recompute_method {} in groups of {})", method, *layers));
    } else if (granularity && lower(*granularity) != "none") {
      draft_.problem(root_.take(Keys{"recompute_granularity", "activations_checkpoint_granularity"})->where,
                     fmt::format("unknown granularity {}", in_quotes(*granularity)), {"allowed: full, selective"});
    }
    root_.not_modelled("recompute_modules", "parts of a layer are recomputed: attention scores are assumed", {"core_attn"});
    root_.not_modelled("cpu_offloading", "activations move to the host: they are assumed to stay on the GPU");
    const std::string backend = root_.word("attention_backend").value_or("");
    if (root_.on("use_flash_attn") || backend == "flash" || backend == "fused" || backend == "auto")
      draft_.training("attention", "flash", "use_flash_attn");
    for (const char* key : {"attention_dropout", "hidden_dropout"}) {
      const auto share = root_.real(key, 0, 1);
      if (std::string_view(key) == "hidden_dropout" && share.value_or(0) > 0) draft_.training("dropout", fmt::format("{}", *share), key);
    }
    if (root_.on("cross_entropy_loss_fusion")) draft_.training("loss", "fused", "cross_entropy_loss_fusion");
  }

  void optimizer() {
    ForeignMap optim(nested({"model", "optim"}), "model.optim", draft_);
    auto word = optim.word("name");
    if (!word) word = root_.word("optimizer");
    std::string name = lower(word.value_or("adam"));
    if (name.find("distributed_fused_adam") != std::string::npos || name.find("megatron") != std::string::npos)
      name = "adam", distributed_ = true;
    const OptimizerName known = optimizer_name(name == "adam" ? "adamw" : name);  // Megatron's Adam is AdamW (decoupled weight decay)
    if (known.name.empty()) draft_.problem(root_.node()->where, fmt::format("unknown optimizer {}", in_quotes(name)));
    const double clip = root_.real(Keys{"clip_grad", "gradient_clip_val"}, 0).value_or(1.0);
    draft_.training("optimizer",
                    clip > 0 ? fmt::format("{{name: {}, implementation: fused, clip_grad_norm: {}}}", known.name, clip)
                             : fmt::format("{{name: {}, implementation: fused}}", known.name),
                    "optimizer, clip_grad");
    root_.not_modelled("optimizer_cpu_offload", "optimizer states on the host: they are assumed to stay on the GPU");
    root_.not_modelled("use_precision_aware_optimizer", "states in other dtypes: fp32 ones are assumed");
  }

  [[nodiscard]] const ConfigNode* nested(std::initializer_list<std::string_view> path) const {
    const ConfigNode* node = &written_;
    for (const std::string_view key : path) node = node == nullptr ? nullptr : node->find(key);
    return node != nullptr && node->kind == ConfigNode::Kind::map ? node : nullptr;
  }

  void strategy() {
    const bool distributed = root_.on("use_distributed_optimizer") || distributed_;
    if (root_.on("use_torch_fsdp2") || root_.on("use_megatron_fsdp") || root_.on("use_custom_fsdp")) {
      draft_.strategy("fsdp2", "use_torch_fsdp2, use_megatron_fsdp");
      draft_.note("Megatron's FSDP is counted as PyTorch's FSDP2");
      root_.without_effect(
          {"overlap_grad_reduce", "overlap_param_gather", "ddp_bucket_size", "grad_reduce_in_bf16", "data_parallel_sharding_strategy"});
      return;
    }
    draft_.strategy("megatron", "Megatron's data parallelism");
    draft_.option("use_distributed_optimizer", distributed ? "true" : "false", "use_distributed_optimizer");
    for (const char* key : {"overlap_grad_reduce", "overlap_param_gather", "average_in_collective", "num_distributed_optimizer_instances",
                            "gradient_reduce_div_fusion"})
      if (const ConfigNode* value = root_.take(key); value != nullptr && !draft_.option(key, *value, key)) root_.without_effect({key});
    if (const ConfigNode* size = root_.take(Keys{"ddp_bucket_size", "bucket_size"});
        size != nullptr && !draft_.option("bucket_size", *size, "ddp_bucket_size"))
      root_.without_effect({"ddp_bucket_size", "bucket_size"});
    // Gradients accumulate in fp32 under bf16 unless told otherwise.
    const bool narrow = root_.on("grad_reduce_in_bf16") || root_.flag("accumulate_allreduce_grads_in_fp32") == false ||
                        root_.flag("grad_reduce_in_fp32") == false;
    draft_.option("grad_reduce_in_fp32", narrow ? "false" : "true", "accumulate_allreduce_grads_in_fp32");
    if (const ConfigNode* experts = root_.take("expert_model_parallel_size");
        experts != nullptr && !draft_.option("expert_parallel_size", *experts, "expert_model_parallel_size"))
      root_.refuse("expert_model_parallel_size", "expert parallelism is not modelled here", {"1"});
  }

  void rest() {
    root_.without_effect({"train_iters",
                          "train_samples",
                          "lr",
                          "min_lr",
                          "lr_decay_style",
                          "lr_decay_iters",
                          "lr_decay_samples",
                          "lr_warmup_iters",
                          "lr_warmup_samples",
                          "lr_warmup_fraction",
                          "lr_wsd_decay_style",
                          "weight_decay",
                          "start_weight_decay",
                          "end_weight_decay",
                          "adam_beta1",
                          "adam_beta2",
                          "adam_eps",
                          "sgd_momentum",
                          "log_interval",
                          "log_throughput",
                          "save_interval",
                          "eval_interval",
                          "eval_iters",
                          "save",
                          "load",
                          "data_path",
                          "train_data_path",
                          "valid_data_path",
                          "test_data_path",
                          "data_cache_path",
                          "split",
                          "tokenizer_type",
                          "tokenizer_model",
                          "vocab_file",
                          "merge_file",
                          "num_workers",
                          "tensorboard_dir",
                          "tensorboard_queue_size",
                          "timing_log_level",
                          "wandb_project",
                          "wandb_exp_name",
                          "wandb_save_dir",
                          "wandb_entity",
                          "seed",
                          "distributed_backend",
                          "distributed_timeout_minutes",
                          "master_addr",
                          "master_port",
                          "node_rank",
                          "rdzv_id",
                          "rdzv_backend",
                          "rdzv_endpoint",
                          "no_load_optim",
                          "no_load_rng",
                          "no_save_optim",
                          "no_save_rng",
                          "finetune",
                          "use_mcore_models",
                          "use_legacy_models",
                          "transformer_impl",
                          "attention_dropout",
                          "initial_loss_scale",
                          "min_loss_scale",
                          "loss_scale",
                          "loss_scale_window",
                          "hysteresis",
                          "no_gradient_accumulation_fusion",
                          "gradient_accumulation_fusion",
                          "no_bias_gelu_fusion",
                          "no_bias_swiglu_fusion",
                          "no_bias_dropout_fusion",
                          "bias_activation_fusion",
                          "bias_dropout_fusion",
                          "masked_softmax_fusion",
                          "no_async_tensor_model_parallel_allreduce",
                          "use_dist_ckpt",
                          "dist_ckpt_format",
                          "auto_detect_ckpt_format",
                          "ckpt_format",
                          "async_save",
                          "exit_duration_in_mins",
                          "exit_interval",
                          "exit_signal_handler",
                          "log_params_norm",
                          "log_num_zeros_in_grad",
                          "log_timers_to_tensorboard",
                          "log_validation_ppl_to_tensorboard",
                          "log_memory_to_tensorboard",
                          "log_batch_size_to_tensorboard",
                          "log_world_size_to_tensorboard",
                          "log_progress",
                          "mock_data",
                          "reset_position_ids",
                          "reset_attention_mask",
                          "eod_mask_loss",
                          "manual_gc",
                          "manual_gc_interval",
                          "profile",
                          "profile_step_start",
                          "profile_step_end",
                          "profile_ranks",
                          "use_pytorch_profiler",
                          "override_opt_param_scheduler",
                          "override_opt_param_scheduler",
                          "use_checkpoint_args",
                          "use_checkpoint_opt_param_scheduler",
                          "decoder_seq_length",
                          "clone_scatter_output_in_embedding",
                          "max_steps",
                          "max_epochs",
                          "log_every_n_steps",
                          "val_check_interval",
                          "limit_val_batches",
                          "limit_test_batches",
                          "enable_checkpointing",
                          "logger",
                          "use_distributed_sampler",
                          "enable_model_summary",
                          "accelerator",
                          "name",
                          "restore_from_path",
                          "explicit_log_dir",
                          "exp_dir",
                          "mcore_gpt",
                          "use_cpu_initialization",
                          "init_method_xavier_uniform",
                          "global_tokens",
                          "betas",
                          "sched",
                          "warmup_steps",
                          "constant_steps",
                          "target_",
                          "_target_",
                          "cfg",
                          "resume_if_exists",
                          "resume_ignore_no_checkpoint",
                          "create_checkpoint_callback",
                          "create_wandb_logger",
                          "test_mode",
                          "yaml_cfg",
                          "no_create_attention_mask_in_dataloader",
                          "num_dataset_builder_threads",
                          "data_args_path",
                          "per_split_data_args_path",
                          "check_for_nan_in_loss_and_grad",
                          "no_check_for_nan_in_loss_and_grad",
                          "check_for_nan_in_grad",
                          "overlap_p2p_comm",
                          "delay_grad_reduce",
                          "deterministic_mode",
                          "eod_mask_loss",
                          "enable_msc",
                          "inference_batch_times_seqlen_threshold",
                          "num_sanity_val_steps",
                          "benchmark",
                          "accumulate_grad_batches",
                          "use_te_rng_tracker",
                          "enable_cuda_graph",
                          "te_rng_tracker",
                          "grad_reduce_in_fp32",
                          "expert_tensor_parallel_size",
                          "moe_router_topk",
                          "data_impl",
                          "splits_string",
                          "skip_train",
                          "use_fused_weighted_squared_relu",
                          "exit_on_missing_checkpoint",
                          "distribute_saved_activations"});
    root_.finish();
  }

  ScenarioDraft& draft_;
  const ImportOptions& options_;
  const ConfigNode& written_;
  ForeignMap root_;
  ModelFacts facts_{0, 2048};
  bool distributed_ = false;
};

}  // namespace

Result<Imported> import_megatron(const Source& source, const ImportOptions& options) {
  const std::string extension = std::filesystem::path(source.name).extension().string();
  const bool yaml =
      extension == ".yaml" || extension == ".yml" || extension == ".json" || (extension != ".sh" && !looks_like_command_line(source));
  const auto root = yaml ? read_yaml(source) : read_command_line(source);
  if (!root) return tl::unexpected(root.error());
  ScenarioDraft draft;
  draft.origin = (yaml ? "the NeMo or Megatron-Bridge configuration " : "the Megatron-LM arguments ") +
                 std::filesystem::path(source.name).filename().string();
  ConfigNode flat;
  flat.kind = ConfigNode::Kind::map;
  flat.where = root->where;
  flatten(*root, flat);
  const auto has = [&](std::string_view key) { return flat.find(key) != nullptr; };
  if (!has("num_layers") && !has("micro_batch_size") && !has("tensor_model_parallel_size") && !has("hidden_size")) {
    draft.problem(root->where, "no arguments of Megatron-LM, NeMo or Megatron-Bridge: neither num_layers nor micro_batch_size is here");
    return std::move(draft).finish(options);
  }
  MegatronReader(flat, *root, draft, options).read();
  return std::move(draft).finish(options);
}

}  // namespace shardsim
