// SPDX-License-Identifier: Apache-2.0
// axolotl's YAML. Defaults are those of its schema (axolotl/utils/schemas) and of the Trainer below it; weights are loaded in the dtype of
// bf16 or fp16 (axolotl/utils/config: torch_dtype).
#include <fmt/format.h>

#include <filesystem>

#include "scenarios/importers/import_trainer.hpp"

namespace shardsim {
namespace {

class AxolotlReader {
 public:
  AxolotlReader(const ConfigNode& tree, ScenarioDraft& draft, const ImportOptions& options)
      : draft_(draft), options_(options), root_(&tree, "", draft), fsdp_(root_.section("fsdp_config")) {}

  void read() {
    facts_.model = root_.take(Keys{"base_model", "model_name_or_path"});
    facts_.model_key = "base_model";
    facts_.sequence = root_.whole("sequence_len", 1);
    if (!facts_.sequence) facts_.sequence = 512;  // axolotl's default
    facts_.sequence_key = "sequence_len";
    facts_.micro_batch = root_.whole(Keys{"micro_batch_size", "batch_size"}, 1).value_or(1);
    facts_.micro_key = "micro_batch_size";
    facts_.accumulation = root_.whole("gradient_accumulation_steps", 1).value_or(1);
    precision();
    adapters();
    memory();
    sharding();
    draft_trainer(facts_, draft_, options_);
    rest();
  }

 private:
  void precision() {
    const ConfigNode* brain = root_.take("bf16");
    const std::string word = brain == nullptr ? "" : lower(brain->text);
    const bool bf16 = brain != nullptr && (word == "auto" || word == "full" || root_.flag("bf16").value_or(false));
    const ConfigNode* half = root_.take("fp16");
    const bool fp16 = !bf16 && half != nullptr && root_.on("fp16");
    facts_.loaded = bf16 || word == "auto" ? "bf16" : fp16 ? "fp16" : "fp32";
    if (facts_.loaded != "fp32") facts_.compute = facts_.loaded;
    if (brain == nullptr && half == nullptr) {
      facts_.loaded = facts_.compute = "bf16";  // bf16: auto is axolotl's default
      draft_.note("bf16 (auto, axolotl's default: the file says nothing)");
    }
    facts_.precision_key = "bf16, fp16";
    root_.without_effect({"tf32", "float32", "bfloat16", "float16"});
    if (root_.on("fp8")) draft_.ignore("fp8", root_.take("fp8")->where, "fp8 products are timed as bf16", Effect::changes);
  }

  void adapters() {
    const auto adapter = root_.choice("adapter", {"lora", "qlora", "llama-adapter"});
    const auto rank = root_.whole("lora_r", 1);
    auto targets = root_.words("lora_target_modules");
    const bool linear = root_.on("lora_target_linear"), four = root_.on("load_in_4bit"), eight = root_.on("load_in_8bit");
    if (four || adapter == "qlora") facts_.quantization = "nf4-double";
    if (eight) facts_.quantization = "int8";
    if (adapter == "llama-adapter") root_.refuse("adapter", "LLaMA-Adapter is not modelled: LoRA and QLoRA are");
    if (adapter) {
      facts_.lora_rank = rank.value_or(8);
      facts_.lora_key = "adapter, lora_r, lora_target_modules";
      facts_.lora_targets = linear || targets.empty() || targets.front() == "all-linear" ? all_linear() : targets;
    }
    root_.without_effect({"lora_alpha", "lora_dropout", "lora_fan_in_fan_out", "lora_modules_to_save", "lora_model_dir", "lora_on_cpu",
                          "peft_use_rslora", "peft_use_dora", "lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "peft",
                          "gptq_disable_exllama", "bnb_config_kwargs", "loraplus_lr_ratio", "loraplus_lr_embedding",
                          "peft_init_lora_weights", "lora_embedding_kernel"});
    root_.not_modelled("unfrozen_parameters", "only some parameters train: all are assumed; name them under model.trainable");
    root_.not_modelled("relora", "ReLoRA merges its adapters now and then: plain adapters are assumed");
    root_.not_modelled("relora_steps", "ReLoRA merges its adapters now and then: plain adapters are assumed");
    root_.not_modelled("gptq", "GPTQ weights: give the checkpoint's config.json with --model");
  }

  void memory() {
    const ConfigNode* node = root_.take("gradient_checkpointing");
    if (node != nullptr && node->kind == ConfigNode::Kind::scalar && lower(node->text) == "offload") {
      facts_.checkpointing = true;
      draft_.ignore("gradient_checkpointing", node->where, "offload: layer inputs move to the host; they are assumed to stay on the GPU",
                    Effect::changes);
    } else {
      facts_.checkpointing = root_.flag("gradient_checkpointing");
    }
    ForeignMap kwargs = root_.section("gradient_checkpointing_kwargs");
    facts_.reentrant = kwargs.flag("use_reentrant");
    kwargs.finish();
    facts_.optimizer_node = root_.take("optimizer");
    facts_.optimizer = root_.word("optimizer").value_or("");
    facts_.optimizer_key = "optimizer";
    facts_.clip = root_.real("max_grad_norm", 0).value_or(1.0);
    facts_.compile = root_.on("torch_compile");
    const bool flash =
        root_.on("flash_attention") || root_.on("sdp_attention") || root_.on("flex_attention") || root_.on("xformers_attention");
    const bool eager = root_.on("eager_attention");
    if (flash || eager) facts_.attention = eager ? "plain" : "flash";
    const bool liger = root_.on("liger_fused_linear_cross_entropy") || root_.on("liger_cross_entropy"), cut = root_.on("cut_cross_entropy");
    facts_.fused_loss = liger || cut;
    root_.without_effect(
        {"liger_rope", "liger_rms_norm", "liger_layer_norm", "liger_glu_activation", "liger_swiglu", "liger_use_token_scaling"},
        "fused kernels: the time of eager ones is assumed");
    root_.not_modelled("activation_offloading", "activations move to the host: they are assumed to stay on the GPU");
  }

  void sharding() {
    facts_.deepspeed = root_.take("deepspeed");
    read_fsdp_words(root_.words("fsdp"), facts_);
    if (fsdp_) facts_.sharded = true;
    if (fsdp_) facts_.fsdp = &fsdp_;
    facts_.fsdp_version = root_.whole("fsdp_version", 1, 2).value_or(1);
    for (const char* key : {"tensor_parallel_size", "context_parallel_size", "sequence_parallel_degree"})
      root_.not_modelled(key, "ranks beside data parallelism: they are assumed to be data-parallel ones with whole sequences and widths",
                         {"1"});
    root_.without_effect({"dp_shard_size", "dp_replicate_size"}, "the world is one shard group");
  }

  void rest() {
    root_.without_effect({"base_model_config",
                          "base_model_ignore_patterns",
                          "model_type",
                          "tokenizer_type",
                          "tokenizer_config",
                          "tokenizer_use_fast",
                          "tokenizer_legacy",
                          "trust_remote_code",
                          "is_llama_derived_model",
                          "is_falcon_derived_model",
                          "is_mistral_derived_model",
                          "is_qwen_derived_model",
                          "resize_token_embeddings_to_32x",
                          "strict",
                          "datasets",
                          "test_datasets",
                          "pretraining_dataset",
                          "dataset_prepared_path",
                          "dataset_processes",
                          "dataset_keep_in_memory",
                          "dataset_shard_num",
                          "dataset_shard_idx",
                          "dataset_num_proc",
                          "shuffle_merged_datasets",
                          "push_dataset_to_hub",
                          "hub_model_id",
                          "hub_strategy",
                          "hf_use_auth_token",
                          "val_set_size",
                          "output_dir",
                          "sample_packing",
                          "eval_sample_packing",
                          "sample_packing_eff_est",
                          "sample_packing_group_size",
                          "sample_packing_bin_size",
                          "total_num_tokens",
                          "multipack_real_batches",
                          "pad_to_sequence_len",
                          "eval_batch_size",
                          "num_epochs",
                          "max_steps",
                          "lr_scheduler",
                          "lr_scheduler_kwargs",
                          "learning_rate",
                          "lr_quadratic_warmup",
                          "cosine_min_lr_ratio",
                          "cosine_constant_lr_ratio",
                          "weight_decay",
                          "adam_beta1",
                          "adam_beta2",
                          "adam_epsilon",
                          "warmup_steps",
                          "warmup_ratio",
                          "train_on_inputs",
                          "group_by_length",
                          "early_stopping_patience",
                          "resume_from_checkpoint",
                          "auto_resume_from_checkpoints",
                          "local_rank",
                          "logging_steps",
                          "xformers_attention",
                          "s2_attention",
                          "flash_attn_cross_entropy",
                          "flash_attn_rms_norm",
                          "flash_attn_fuse_qkv",
                          "flash_attn_fuse_mlp",
                          "flash_optimum",
                          "evals_per_epoch",
                          "eval_steps",
                          "eval_strategy",
                          "eval_table_size",
                          "eval_max_new_tokens",
                          "eval_causal_lm_metrics",
                          "saves_per_epoch",
                          "save_steps",
                          "save_strategy",
                          "save_total_limit",
                          "save_safetensors",
                          "save_first_step",
                          "debug",
                          "special_tokens",
                          "tokens",
                          "added_tokens_overrides",
                          "wandb_project",
                          "wandb_entity",
                          "wandb_watch",
                          "wandb_name",
                          "wandb_run_id",
                          "wandb_log_model",
                          "wandb_mode",
                          "mlflow_tracking_uri",
                          "mlflow_experiment_name",
                          "hf_mlflow_log_artifacts",
                          "comet_project_name",
                          "use_tensorboard",
                          "use_wandb",
                          "use_mlflow",
                          "chat_template",
                          "chat_template_jinja",
                          "default_system_message",
                          "seed",
                          "ddp_timeout",
                          "ddp_bucket_cap_mb",
                          "ddp_broadcast_buffers",
                          "ddp_find_unused_parameters",
                          "plugins",
                          "neftune_noise_alpha",
                          "noisy_embedding_alpha",
                          "loss_watchdog_threshold",
                          "loss_watchdog_patience",
                          "do_bench_eval",
                          "bench_dataset",
                          "dataloader_num_workers",
                          "dataloader_pin_memory",
                          "dataloader_prefetch_factor",
                          "dataloader_drop_last",
                          "remove_unused_columns",
                          "max_packed_sequence_len",
                          "rl",
                          "dpo_beta",
                          "excess_length_strategy",
                          "include_tokens_per_second",
                          "torch_compile_backend",
                          "torch_compile_mode",
                          "gc_steps",
                          "use_ray",
                          "ray_num_workers",
                          "shuffle_before_merging_datasets",
                          "skip_prepare_dataset",
                          "streaming",
                          "batch_flattening",
                          "flash_attn_fuse_qkv",
                          "embeddings_skip_upcast",
                          "device_map",
                          "max_memory",
                          "gpu_memory_limit",
                          "low_cpu_mem_usage",
                          "revision_of_model",
                          "processor_type",
                          "image_size",
                          "skip_processing",
                          "experimental_skip_move_to_device",
                          "roles_to_train",
                          "profiler_steps"});
    root_.not_modelled("overrides_of_model_config", "keys of the model's config are changed: give the whole config.json with --model");
    root_.not_modelled("overrides_of_model_kwargs", "arguments of the model's constructor are changed: the preset is assumed");
    root_.not_modelled("rope_scaling", "longer positions: no difference in parameters or traffic, and the sequence is as given");
    root_.finish();
  }

  ScenarioDraft& draft_;
  const ImportOptions& options_;
  ForeignMap root_, fsdp_;
  TrainerFacts facts_;
};

}  // namespace

Result<Imported> import_axolotl(const Source& source, const ImportOptions& options) {
  const auto root = read_yaml(source);
  if (!root) return tl::unexpected(root.error());
  ScenarioDraft draft;
  draft.origin = "the axolotl configuration " + std::filesystem::path(source.name).filename().string();
  if (root->find("base_model") == nullptr) {
    draft.problem(root->where, "not an axolotl configuration: it has no key 'base_model'");
    return std::move(draft).finish(options);
  }
  AxolotlReader(*root, draft, options).read();
  return std::move(draft).finish(options);
}

}  // namespace shardsim
