// SPDX-License-Identifier: Apache-2.0
// Arguments of Hugging Face's Trainer and of TRL's trainers: a JSON or YAML of TrainingArguments, or a command line. Defaults are those of
// TrainingArguments (training_args.py) and of TRL's ModelConfig and SFTConfig.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/importers/command_line.hpp"
#include "scenarios/importers/import_trainer.hpp"

namespace shardsim {
namespace {

class TrainingArgumentsReader {
 public:
  TrainingArgumentsReader(const ConfigNode& tree, ScenarioDraft& draft, const ImportOptions& options)
      : draft_(draft), options_(options), root_(&tree, "", draft), fsdp_(inner("fsdp_config"), "fsdp_config", draft) {}

  void read() {
    launcher();
    model();
    batch();
    precision();
    memory();
    sharding();
    draft_trainer(facts_, draft_, options_);
    rest();
  }

 private:
  /// A map, or a JSON text of one on the command line.
  const ConfigNode* inner(std::string_view key) {
    const ConfigNode* node = root_.take(key);
    if (node == nullptr || node->kind != ConfigNode::Kind::scalar) return node;
    const auto first = node->text.find_first_not_of(" \t\n");
    const bool json = first != std::string::npos && node->text[first] == '{';
    auto tree = json ? read_yaml({std::string(key), node->text}) : file(*node);
    if (!tree) {
      draft_.append(tree.error());
      return nullptr;
    }
    parsed_.push_back(std::make_unique<ConfigNode>(std::move(*tree)));
    return parsed_.back().get();
  }

  static Result<ConfigNode> file(const ConfigNode& name) {
    namespace fs = std::filesystem;
    const fs::path written = name.text, beside = fs::path(name.where.source->name).parent_path() / written;
    std::error_code error;
    for (const fs::path& path : {written, beside})
      if (fs::is_regular_file(path, error))
        return read_source(path.string()).and_then([](const Source& source) { return read_yaml(source); });
    Problems problems;
    problems.add(name.where, fmt::format("the file {} is not there", in_quotes(name.text)),
                 {"looked in the current folder and next to this file"});
    return tl::unexpected(std::move(problems));
  }

  /// torchrun's, accelerate's and deepspeed's own arguments.
  void launcher() {
    const auto per_node = root_.whole(Keys{"nproc_per_node", "num_gpus"}, 1),
               nodes = root_.whole(Keys{"nnodes", "num_machines", "num_nodes"}, 1);
    const auto processes = root_.whole("num_processes", 1);
    facts_.nodes = nodes.value_or(0);
    facts_.gpus_per_node = per_node ? *per_node : processes ? std::max<std::int64_t>(*processes / nodes.value_or(1), 1) : 0;
    root_.without_effect({"node_rank", "machine_rank", "master_addr", "master_port", "main_process_ip", "main_process_port", "rdzv_backend",
                          "rdzv_endpoint", "rdzv_id", "hostfile", "include", "exclude", "standalone", "module", "max_restarts",
                          "same_network", "multi_gpu", "tee", "log_dir"});
    if (const ConfigNode* config = root_.take("config_file"))
      draft_.ignore("config_file", config->where,
                    "accelerate's configuration changes the strategy and is not read here: import it (import accelerate)", Effect::changes);
  }

  void model() {
    facts_.model = root_.take(Keys{"model_name_or_path", "model_name", "model_id"});
    facts_.model_key = root_.source(Keys{"model_name_or_path", "model_name", "model_id"});
    const Keys sequence{"max_seq_length", "max_length", "model_max_length", "block_size", "max_seq_len", "seq_length"};
    facts_.sequence = root_.whole(sequence, 1);
    facts_.sequence_key = root_.source(sequence);
    ForeignMap init = root_.section("model_init_kwargs");
    auto loaded = root_.word(Keys{"torch_dtype", "dtype"});
    if (!loaded) loaded = init.word(Keys{"torch_dtype", "dtype"});
    if (loaded && *loaded != "auto") {
      facts_.loaded = dtype_by_name(*loaded);
      if (facts_.loaded.empty()) draft_.problem(root_.node()->where, fmt::format("unknown dtype {}", in_quotes(*loaded)));
    }
    auto attention = root_.word("attn_implementation");
    if (!attention) attention = init.word("attn_implementation");
    init.without_effect({"use_cache", "trust_remote_code", "low_cpu_mem_usage", "device_map", "revision"});
    init.finish();
    if (attention) facts_.attention = *attention == "eager" ? "plain" : "flash";
    adapters();
  }

  void adapters() {
    const bool peft = root_.on("use_peft") || root_.on("use_lora");
    const auto rank = root_.whole(Keys{"lora_r", "lora_rank"}, 1);
    const auto targets = root_.words("lora_target_modules");
    if (peft) {
      facts_.lora_rank = rank.value_or(16);
      facts_.lora_key = "use_peft, lora_r";
      facts_.lora_targets = targets.size() == 1 && targets.front() == "all-linear" ? all_linear() : targets;
    }
    const bool double_quant = root_.on("use_bnb_nested_quant");
    if (root_.on("load_in_4bit")) facts_.quantization = double_quant ? "nf4-double" : "nf4";
    if (root_.on("load_in_8bit")) facts_.quantization = "int8";
    root_.without_effect({"lora_alpha", "lora_dropout", "lora_task_type", "lora_modules_to_save", "bnb_4bit_quant_type", "use_rslora",
                          "bnb_4bit_quant_storage", "lora_target_parameters", "use_dora"});
  }

  void batch() {
    facts_.micro_batch = root_.whole(Keys{"per_device_train_batch_size", "per_gpu_train_batch_size"}, 1);
    facts_.accumulation = root_.whole("gradient_accumulation_steps", 1);
    if (const ConfigNode* node = root_.take("auto_find_batch_size"); node != nullptr && root_.on("auto_find_batch_size"))
      draft_.ignore("auto_find_batch_size", node->where, "the batch is halved until it fits: the one in the file is assumed",
                    Effect::changes);
  }

  void precision() {
    if (root_.on("bf16")) facts_.compute = "bf16";
    if (root_.on("fp16")) facts_.compute = "fp16";
    facts_.precision_key = "bf16, fp16, torch_dtype";
  }

  void memory() {
    facts_.checkpointing = root_.flag("gradient_checkpointing");
    ForeignMap kwargs(inner("gradient_checkpointing_kwargs"), "gradient_checkpointing_kwargs", draft_);
    facts_.reentrant = kwargs.flag("use_reentrant");
    kwargs.without_effect({"preserve_rng_state"});
    kwargs.finish();
    facts_.optimizer_node = root_.take("optim");
    facts_.optimizer = root_.word("optim").value_or("");
    facts_.clip = root_.real("max_grad_norm", 0).value_or(1.0);
    facts_.compile = root_.on("torch_compile") || (root_.take("torch_compile_backend") != nullptr);
    facts_.fused_loss = root_.on(Keys{"use_liger_kernel", "use_liger"});
  }

  void sharding() {
    facts_.deepspeed = root_.take("deepspeed");
    if (facts_.deepspeed != nullptr && facts_.deepspeed->kind == ConfigNode::Kind::scalar && facts_.deepspeed->text == "true")
      facts_.deepspeed = nullptr;
    read_fsdp_words(root_.words("fsdp"), facts_);
    if (const auto least = root_.whole("fsdp_min_num_params", 0); least.value_or(0) > 0)
      draft_.note("each block of the model is one unit (units by size in the file)");
    root_.without_effect({"fsdp_transformer_layer_cls_to_wrap"}, "the model's repeated block is the unit");
    if (fsdp_ && facts_.sharded) facts_.fsdp = &fsdp_;
    if (fsdp_ && !facts_.sharded) fsdp_.all_without_effect("fsdp is off");
  }

  void ddp() {
    if (draft_.strategy_name() != "ddp")
      return root_.without_effect({"ddp_bucket_cap_mb", "ddp_find_unused_parameters", "ddp_broadcast_buffers", "ddp_static_graph"},
                                  "options of DDP");
    if (const ConfigNode* cap = root_.take("ddp_bucket_cap_mb")) draft_.option("bucket_cap_mb", *cap, "ddp_bucket_cap_mb");
    if (const ConfigNode* unused = root_.take("ddp_find_unused_parameters"))
      draft_.option("find_unused_parameters", *unused, "ddp_find_unused_parameters");
    root_.without_effect({"ddp_broadcast_buffers", "ddp_static_graph"});
  }

  void rest() {
    ddp();
    root_.without_effect({"output_dir",
                          "overwrite_output_dir",
                          "do_train",
                          "do_eval",
                          "do_predict",
                          "eval_strategy",
                          "evaluation_strategy",
                          "prediction_loss_only",
                          "per_device_eval_batch_size",
                          "eval_accumulation_steps",
                          "eval_delay",
                          "torch_empty_cache_steps",
                          "learning_rate",
                          "weight_decay",
                          "adam_beta1",
                          "adam_beta2",
                          "adam_epsilon",
                          "num_train_epochs",
                          "max_steps",
                          "lr_scheduler_type",
                          "lr_scheduler_kwargs",
                          "warmup_ratio",
                          "warmup_steps",
                          "log_level",
                          "log_level_replica",
                          "log_on_each_node",
                          "logging_dir",
                          "logging_strategy",
                          "logging_first_step",
                          "logging_steps",
                          "logging_nan_inf_filter",
                          "save_strategy",
                          "save_steps",
                          "save_total_limit",
                          "save_safetensors",
                          "save_on_each_node",
                          "save_only_model",
                          "restore_callback_states_from_checkpoint",
                          "seed",
                          "data_seed",
                          "eval_steps",
                          "dataloader_drop_last",
                          "dataloader_num_workers",
                          "dataloader_prefetch_factor",
                          "dataloader_pin_memory",
                          "dataloader_persistent_workers",
                          "past_index",
                          "run_name",
                          "disable_tqdm",
                          "remove_unused_columns",
                          "label_names",
                          "load_best_model_at_end",
                          "metric_for_best_model",
                          "greater_is_better",
                          "ignore_data_skip",
                          "accelerator_config",
                          "length_column_name",
                          "report_to",
                          "project",
                          "trackio_space_id",
                          "push_to_hub",
                          "resume_from_checkpoint",
                          "hub_model_id",
                          "hub_strategy",
                          "hub_token",
                          "hub_private_repo",
                          "hub_always_push",
                          "hub_revision",
                          "include_for_metrics",
                          "include_inputs_for_metrics",
                          "eval_do_concat_batches",
                          "ddp_timeout",
                          "ddp_backend",
                          "torch_compile_backend",
                          "torch_compile_mode",
                          "include_tokens_per_second",
                          "include_num_input_tokens_seen",
                          "eval_on_start",
                          "use_legacy_prediction_loop",
                          "tf32",
                          "bf16_full_eval",
                          "fp16_full_eval",
                          "fp16_opt_level",
                          "fp16_backend",
                          "half_precision_backend",
                          "local_rank",
                          "jit_mode_eval",
                          "use_ipex",
                          "use_cpu",
                          "no_cuda",
                          "use_mps_device",
                          "debug",
                          "group_by_length",
                          "skip_memory_metrics",
                          "full_determinism",
                          "batch_eval_metrics",
                          "optim_args",
                          "optim_target_modules",
                          "average_tokens_across_devices",
                          "push_to_hub_model_id",
                          "push_to_hub_organization",
                          "push_to_hub_token",
                          "mp_parameters",
                          "tpu_num_cores",
                          "tpu_metrics_debug",
                          "torchdynamo",
                          "ray_scope",
                          "label_smoothing_factor",
                          "split_batches",
                          "parallelism_config",
                          "trackio",
                          "use_cache",
                          "enable_jit_checkpoint"});
    // Scripts and TRL.
    root_.without_effect({"dataset_name",
                          "dataset_config",
                          "dataset_config_name",
                          "dataset_train_split",
                          "dataset_test_split",
                          "dataset_text_field",
                          "dataset_kwargs",
                          "dataset_num_proc",
                          "dataset_batch_size",
                          "dataset_streaming",
                          "dataset_mixer",
                          "dataset_splits",
                          "dataset_configs",
                          "datasets",
                          "train_file",
                          "validation_file",
                          "validation_split_percentage",
                          "preprocessing_num_workers",
                          "streaming",
                          "overwrite_cache",
                          "keep_linebreaks",
                          "max_train_samples",
                          "max_eval_samples",
                          "tokenizer_name",
                          "config_name",
                          "config_overrides",
                          "model_type",
                          "cache_dir",
                          "use_fast_tokenizer",
                          "model_revision",
                          "token",
                          "use_auth_token",
                          "trust_remote_code",
                          "low_cpu_mem_usage",
                          "chat_template",
                          "chat_template_path",
                          "eos_token",
                          "pad_token",
                          "pad_to_multiple_of",
                          "neftune_noise_alpha",
                          "packing_strategy",
                          "eval_packing",
                          "completion_only_loss",
                          "assistant_only_loss",
                          "eval_on_start",
                          "gradient_checkpointing_kwargs",
                          "shuffle_dataset",
                          "beta",
                          "loss_type",
                          "max_prompt_length",
                          "max_completion_length",
                          "reward_weights",
                          "truncation_mode",
                          "system_prompt",
                          "wandb_project",
                          "wandb_entity",
                          "benchmarks",
                          "callbacks",
                          "log_completions",
                          "model_code_revision",
                          "data_path",
                          "data_files",
                          "text_column",
                          "bits",
                          "version",
                          "lazy_preprocess",
                          "group_by_modality_length",
                          "tune_mm_mlp_adapter",
                          "lm_eval_tasks",
                          "dataset_mixture",
                          "activation_offloading",
                          "padding_free"});
    root_.not_modelled("packing", "documents are packed: sequences of full length are assumed, which is what packing gives");
    root_.not_modelled("galore_rank", "GaLore projects gradients: plain optimizer states are assumed");
    root_.not_modelled("sequence_parallel_size", "sequences are split over ranks: whole sequences are assumed", {"1"});
    root_.not_modelled("precompute_ref_log_probs",
                       "log-probabilities of the reference model are computed before: no reference model is counted");
    root_.not_modelled("ref_model_init_kwargs", "a reference model beside the trained one is not counted");
    root_.not_modelled("use_vllm", "generation beside training is not counted");
    root_.finish();
  }

  ScenarioDraft& draft_;
  const ImportOptions& options_;
  std::vector<std::unique_ptr<ConfigNode>> parsed_;
  ForeignMap root_, fsdp_;
  TrainerFacts facts_;
};

Result<ConfigNode> read_arguments(const Source& source) {
  const std::string extension = std::filesystem::path(source.name).extension().string();
  if (extension == ".sh" || extension == ".bash" || extension == ".sbatch" || extension == ".slurm" || extension == ".args")
    return read_command_line(source);
  if (extension == ".json") return read_json(source);
  return looks_like_command_line(source) ? read_command_line(source) : read_yaml(source);
}

}  // namespace

Result<Imported> import_transformers(const Source& source, const ImportOptions& options) {
  const auto root = read_arguments(source);
  if (!root) return tl::unexpected(root.error());
  ScenarioDraft draft;
  draft.origin = "the training arguments " + std::filesystem::path(source.name).filename().string();
  if (root->kind != ConfigNode::Kind::map || root->entries.empty()) {
    draft.problem(root->where, "no training arguments: a map of them in JSON or YAML, or a command line, is read");
    return std::move(draft).finish(options);
  }
  TrainingArgumentsReader(*root, draft, options).read();
  return std::move(draft).finish(options);
}

}  // namespace shardsim
