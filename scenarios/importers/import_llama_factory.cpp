// SPDX-License-Identifier: Apache-2.0
// LLaMA-Factory's YAML or JSON. Defaults are those of its arguments (llamafactory/hparams): LoRA of rank 8 on all linear modules, gradient
// checkpointing on, sequences of 2048, trainable weights in fp32 unless pure_bf16.
#include <fmt/format.h>

#include <filesystem>

#include "scenarios/importers/import_trainer.hpp"

namespace shardsim {
namespace {

class LlamaFactoryReader {
 public:
  LlamaFactoryReader(const ConfigNode& tree, ScenarioDraft& draft, const ImportOptions& options)
      : draft_(draft), options_(options), root_(&tree, "", draft), fsdp_(root_.section("fsdp_config")) {}

  void read() {
    facts_.model = root_.take("model_name_or_path");
    facts_.model_key = "model_name_or_path";
    facts_.sequence = root_.whole("cutoff_len", 1).value_or(2048);
    facts_.sequence_key = "cutoff_len";
    facts_.micro_batch = root_.whole("per_device_train_batch_size", 1);
    facts_.accumulation = root_.whole("gradient_accumulation_steps", 1);
    tuning();
    precision();
    memory();
    facts_.deepspeed = root_.take("deepspeed");
    read_fsdp_words(root_.words("fsdp"), facts_);
    if (fsdp_ && facts_.sharded) facts_.fsdp = &fsdp_;
    draft_trainer(facts_, draft_, options_);
    rest();
  }

 private:
  void tuning() {
    const std::string kind = root_.choice("finetuning_type", {"lora", "full", "freeze", "oft"}).value_or("lora");
    const auto rank = root_.whole("lora_rank", 1);
    const auto targets = root_.words("lora_target");
    std::vector<std::string> split;
    for (const std::string& text : targets)
      for (std::size_t at = 0; at <= text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        std::string word = text.substr(at, comma - at);
        std::erase(word, ' ');
        if (!word.empty()) split.push_back(word);
        at = comma + 1;
      }
    if (kind == "lora") {
      facts_.lora_rank = rank.value_or(8);
      facts_.lora_key = "finetuning_type, lora_rank, lora_target";
      facts_.lora_targets = split.empty() || split.front() == "all" ? all_linear() : split;
    } else if (kind != "full") {
      root_.refuse("finetuning_type", kind + " tuning is not modelled: full and lora are");
    }
    if (const auto bits = root_.whole("quantization_bit", 1)) {
      const std::string method = root_.word("quantization_method").value_or("bnb");
      if ((*bits != 4 && *bits != 8) || (method != "bnb" && method != "bitsandbytes")) {
        draft_.problem(root_.take("quantization_bit")->where,
                       fmt::format("quantization of {} bits by {} is not modelled: bitsandbytes' 4 and 8 bits are", *bits, method));
      } else {
        facts_.quantization = *bits == 8 ? "int8" : root_.flag("double_quantization").value_or(true) ? "nf4-double" : "nf4";
      }
    }
    root_.without_effect({"lora_alpha", "lora_dropout", "loraplus_lr_ratio", "loraplus_lr_embedding", "use_rslora", "use_dora",
                          "pissa_init", "pissa_iter", "pissa_convert", "create_new_adapter", "additional_target", "adapter_name_or_path",
                          "adapter_folder", "double_quantization", "quantization_type", "quantization_method", "quantization_device_map"});
    root_.not_modelled("use_galore", "GaLore projects gradients: plain optimizer states are assumed");
    root_.not_modelled("use_apollo", "APOLLO projects gradients: plain optimizer states are assumed");
    root_.not_modelled("use_badam", "BAdam trains a block at a time: all parameters are assumed to train");
    root_.not_modelled("use_muon", "Muon in place of AdamW: set training.optimizer");
  }

  void precision() {
    const bool bf16 = root_.on("bf16"), fp16 = root_.on("fp16"), pure = root_.on("pure_bf16");
    if (bf16) facts_.compute = "bf16";
    if (fp16) facts_.compute = "fp16";
    facts_.loaded = pure || (facts_.lora_rank && bf16) ? "bf16" : facts_.lora_rank && fp16 ? "fp16" : "fp32";
    if (pure) facts_.compute = "no";
    facts_.precision_key = "bf16, fp16, pure_bf16";
    root_.without_effect({"upcast_layernorm", "upcast_lmhead_output", "infer_dtype", "tf32"});
    if (root_.on("fp8")) draft_.ignore("fp8", root_.take("fp8")->where, "fp8 products are timed as bf16", Effect::changes);
    root_.without_effect({"fp8_backend", "fp8_enable_fsdp_float8_all_gather"});
  }

  void memory() {
    facts_.checkpointing = !root_.on(Keys{"disable_gradient_checkpointing"});
    if (const auto flag = root_.flag("gradient_checkpointing")) facts_.checkpointing = flag;
    facts_.checkpointing_key = "disable_gradient_checkpointing: false is the default";
    facts_.reentrant = root_.flag("use_reentrant_gc");
    facts_.optimizer_node = root_.take("optim");
    facts_.optimizer = root_.word("optim").value_or("");
    facts_.clip = root_.real("max_grad_norm", 0).value_or(1.0);
    facts_.compile = root_.on("torch_compile");
    facts_.fused_loss = root_.on("enable_liger_kernel");
    const auto attention = root_.choice("flash_attn", {"auto", "disabled", "sdpa", "fa2", "fa3"});
    if (attention) facts_.attention = *attention == "disabled" ? "plain" : "flash";
    root_.without_effect({"use_unsloth", "use_unsloth_gc", "use_kt"}, "other kernels: the time of the usual ones is assumed");
    root_.not_modelled("shift_attn", "S2 attention within groups: full attention is assumed");
    root_.not_modelled("mixture_of_depths", "tokens skip layers: all layers are assumed");
  }

  void rest() {
    if (root_.take("stage") != nullptr) {
      const std::string stage = root_.word("stage").value_or("sft");
      if (stage == "rm" || stage == "ppo" || stage == "dpo" || stage == "kto")
        draft_.ignore("stage", root_.take("stage")->where,
                      fmt::format("{}: a step on one model with its language-model head is assumed (no reference or reward model)", stage),
                      Effect::changes);
    }
    root_.without_effect({"do_train",
                          "do_eval",
                          "do_predict",
                          "dataset",
                          "eval_dataset",
                          "dataset_dir",
                          "media_dir",
                          "template",
                          "max_samples",
                          "overwrite_cache",
                          "preprocessing_num_workers",
                          "preprocessing_batch_size",
                          "dataloader_num_workers",
                          "dataloader_pin_memory",
                          "output_dir",
                          "logging_steps",
                          "logging_dir",
                          "save_steps",
                          "plot_loss",
                          "overwrite_output_dir",
                          "save_only_model",
                          "save_total_limit",
                          "save_strategy",
                          "report_to",
                          "run_name",
                          "learning_rate",
                          "num_train_epochs",
                          "max_steps",
                          "lr_scheduler_type",
                          "lr_scheduler_kwargs",
                          "warmup_ratio",
                          "warmup_steps",
                          "weight_decay",
                          "adam_beta1",
                          "adam_beta2",
                          "adam_epsilon",
                          "ddp_timeout",
                          "ddp_find_unused_parameters",
                          "resume_from_checkpoint",
                          "val_size",
                          "per_device_eval_batch_size",
                          "eval_strategy",
                          "evaluation_strategy",
                          "eval_steps",
                          "trust_remote_code",
                          "packing",
                          "neat_packing",
                          "train_on_prompt",
                          "mask_history",
                          "streaming",
                          "buffer_size",
                          "mix_strategy",
                          "interleave_probs",
                          "ignore_pad_token_for_loss",
                          "tokenized_path",
                          "data_shared_file_system",
                          "seed",
                          "data_seed",
                          "remove_unused_columns",
                          "include_num_input_tokens_seen",
                          "load_best_model_at_end",
                          "predict_with_generate",
                          "compute_accuracy",
                          "pref_beta",
                          "pref_loss",
                          "pref_ftx",
                          "simpo_gamma",
                          "rope_scaling",
                          "resize_vocab",
                          "new_special_tokens",
                          "add_tokens",
                          "add_special_tokens",
                          "image_max_pixels",
                          "image_min_pixels",
                          "video_max_pixels",
                          "video_fps",
                          "video_maxlen",
                          "freeze_vision_tower",
                          "freeze_multi_modal_projector",
                          "freeze_language_model",
                          "cache_dir",
                          "use_fast_tokenizer",
                          "split_special_tokens",
                          "model_revision",
                          "low_cpu_mem_usage",
                          "use_swanlab",
                          "swanlab_project",
                          "swanlab_run_name",
                          "hub_model_id",
                          "push_to_hub",
                          "ray_run_name",
                          "ray_num_workers",
                          "neftune_noise_alpha",
                          "default_system",
                          "enable_thinking",
                          "disable_tqdm",
                          "group_by_length",
                          "stage",
                          "optim_args",
                          "reward_model",
                          "ref_model",
                          "ref_model_quantization_bit"});
    root_.finish();
  }

  ScenarioDraft& draft_;
  const ImportOptions& options_;
  ForeignMap root_, fsdp_;
  TrainerFacts facts_;
};

}  // namespace

Result<Imported> import_llama_factory(const Source& source, const ImportOptions& options) {
  const auto root = read_yaml(source);  // JSON is YAML, too
  if (!root) return tl::unexpected(root.error());
  ScenarioDraft draft;
  draft.origin = "the LLaMA-Factory configuration " + std::filesystem::path(source.name).filename().string();
  if (root->find("model_name_or_path") == nullptr) {
    draft.problem(root->where, "not a LLaMA-Factory configuration: it has no key 'model_name_or_path'");
    return std::move(draft).finish(options);
  }
  LlamaFactoryReader(*root, draft, options).read();
  return std::move(draft).finish(options);
}

}  // namespace shardsim
