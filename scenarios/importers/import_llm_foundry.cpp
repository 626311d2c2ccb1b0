// SPDX-License-Identifier: Apache-2.0
// LLM Foundry's training YAML, and other programs on Composer's Trainer: the same batch, precision and FSDP keys.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/importers/foreign_map.hpp"

namespace shardsim {
namespace {

/// Replaces "${a.b}" by the value at a.b, as OmegaConf does; a reference that leads nowhere or in a circle stays as text.
void interpolate(ConfigNode& node, const ConfigNode& root, int depth = 0) {
  for (auto& item : node.items) interpolate(item, root, depth);
  for (auto& entry : node.entries) interpolate(entry.value, root, depth);
  if (node.kind != ConfigNode::Kind::scalar || !node.text.starts_with("${") || !node.text.ends_with("}") || depth > 8) return;
  const ConfigNode* found = &root;
  std::string_view path(node.text);
  path = path.substr(2, path.size() - 3);
  while (found != nullptr && !path.empty()) {
    const auto dot = path.find('.');
    found = found->find(path.substr(0, dot));
    path = dot == std::string_view::npos ? std::string_view{} : path.substr(dot + 1);
  }
  if (found == nullptr || (found->kind != ConfigNode::Kind::scalar && found->kind != ConfigNode::Kind::null)) return;
  ConfigNode value = *found;
  value.where = node.where;
  interpolate(value, root, depth + 1);
  node = std::move(value);
}

class ComposerReader {
 public:
  ComposerReader(const ConfigNode& tree, ScenarioDraft& draft, const ImportOptions& options, bool foundry)
      : draft_(draft), options_(options), foundry_(foundry), root_(&tree, "", draft) {}

  void read() {
    model();
    batch();
    fsdp();
    optimizer();
    draft_.training("stack", "llm-foundry", "what the software costs");
    if (foundry_) draft_.training("attention", attention_, "model.attn_config.attn_impl");
    if (!loss_.empty()) draft_.training("loss", loss_, "model.loss_fn");
    root_.without_effect({"variables",
                          "run_name",
                          "tokenizer",
                          "train_loader",
                          "eval_loader",
                          "scheduler",
                          "schedulers",
                          "callbacks",
                          "loggers",
                          "seed",
                          "max_duration",
                          "progress_bar",
                          "log_to_console",
                          "console_log_interval",
                          "dist_timeout",
                          "icl_seq_len",
                          "eval_interval",
                          "eval_first",
                          "eval_subset_num_batches",
                          "device_eval_batch_size",
                          "device_eval_microbatch_size",
                          "save_folder",
                          "save_interval",
                          "save_overwrite",
                          "save_num_checkpoints_to_keep",
                          "save_weights_only",
                          "save_filename",
                          "save_latest_filename",
                          "save_ignore_keys",
                          "load_path",
                          "load_weights_only",
                          "load_strict_model_weights",
                          "load_ignore_keys",
                          "autoresume",
                          "python_log_level",
                          "icl_tasks",
                          "icl_subset_num_batches",
                          "metadata",
                          "dataset",
                          "data_local",
                          "data_remote",
                          "global_seed",
                          "code_paths",
                          "profiler",
                          "only_hf_checkpoint",
                          "only_composer_checkpoint",
                          "max_split_size_mb",
                          "expandable_segments",
                          "cuda_load_lazy",
                          "eval_gauntlet",
                          "icl_tasks_str",
                          "device",
                          "spin_dataloaders",
                          "deterministic_mode",
                          "is_train",
                          "run_event",
                          "accumulate_train_batch_on_tokens",
                          "final_register_only",
                          "log_config",
                          "eval_dataloader",
                          "train_dataloader"});
    root_.not_modelled("compile_config", "torch.compile: eager kernels are assumed");
    root_.not_modelled("deepspeed_config", "DeepSpeed's configuration is imported from its own file");
    root_.finish();
  }

 private:
  void model() {
    ForeignMap block = root_.section("model");
    sequence_ = root_.whole("max_seq_len", 1);
    const std::string name = block.word("name").value_or("");
    const ConfigNode* pretrained = block.take("pretrained_model_name_or_path");
    adapters(block);
    if (!options_.model.empty() || !foundry_) {
      const ModelFacts facts = describe_model(draft_, options_);
      if (!sequence_) default_sequence_ = facts.sequence_length;
      return block.all_without_effect("--model was given");
    }
    if (name == "mpt_causal_lm") {
      mpt(block);
    } else if (pretrained != nullptr) {
      hugging_face(block, *pretrained);
    } else if (block) {
      draft_.problem(block.node()->where, fmt::format("no way is known to build the model {}", in_quotes(name)), {"give one with --model"});
    }
    block.without_effect({"init_device",       "pretrained",         "use_auth_token",
                          "init_config",       "use_train_metrics",  "additional_train_metrics",
                          "trust_remote_code", "logit_scale",        "embedding_fraction",
                          "softmax_scale",     "initializer_range",  "verbose",
                          "use_logits",        "shift_labels",       "additional_eval_metrics",
                          "use_cache",         "emb_pdrop",          "should_save_peft_only",
                          "norm_eps",          "use_pad_tok_in_ffn", "final_logit_softcapping"});
    block.not_modelled("config_overrides", "keys of the model's config are changed: give the whole config.json with --model");
    block.not_modelled("resid_pdrop", "dropout on residuals: none is assumed", {"0", "0.0"});
    block.finish();
  }

  /// peft_config: LoRA adapters.
  void adapters(ForeignMap& block) {
    ForeignMap peft = block.section("peft_config");
    if (!peft) return;
    const auto rank = peft.whole("r", 1);
    const auto targets = peft.words("target_modules");
    peft.without_effect({"peft_type", "task_type", "lora_alpha", "lora_dropout", "bias", "inference_mode"});
    peft.finish();
    if (!rank || targets.empty()) return draft_.problem(peft.node()->where, "peft_config needs 'r' and 'target_modules'");
    std::string list;
    for (const auto& target : targets) list += (list.empty() ? "" : ", ") + yaml_scalar(target);
    draft_.model("trainable", fmt::format("{{lora: {{rank: {}, targets: [{}]}}}}", *rank, list), "model.peft_config");
  }

  /// The family's defaults are those of LLM Foundry's MPTConfig.
  void mpt(ForeignMap& block) {
    const std::int64_t width = block.whole("d_model", 1).value_or(2048), heads = block.whole("n_heads", 1).value_or(16),
                       layers = block.whole("n_layers", 1).value_or(24), vocabulary = block.whole("vocab_size", 1).value_or(50368),
                       positions = block.whole("max_seq_len", 1).value_or(2048);
    const double ratio = block.real("expansion_ratio", 0).value_or(4);
    const bool no_bias = block.on("no_bias"), tied = block.flag("tie_word_embeddings").value_or(true);
    const std::string norm =
        block.choice("norm_type", {"low_precision_layernorm", "layernorm", "low_precision_rmsnorm", "rmsnorm", "triton_rmsnorm"})
            .value_or("low_precision_layernorm");
    ForeignMap attention = block.section("attn_config");
    const bool alibi = attention.on("alibi"), rope = attention.on("rope"), qk_norm = attention.on("qk_ln");
    const std::string type = attention.choice("attn_type", {"multihead_attention", "multiquery_attention", "grouped_query_attention"})
                                 .value_or("multihead_attention");
    const std::int64_t kv_heads = attention.whole("kv_n_heads", 1).value_or(type == "multiquery_attention" ? 1 : heads);
    const bool fused = attention.flag("fused_qkv").value_or(true);
    const auto kernel = attention.choice("attn_impl", {"flash", "torch", "flex"}).value_or("flash");
    if (kernel == "torch") attention_ = "plain";
    attention.without_effect({"clip_qkv", "softmax_scale", "attn_pdrop", "prefix_lm", "attn_uses_sequence_id", "alibi_bias_max",
                              "rope_theta", "rope_impl", "rope_dail_config", "rope_hf_config", "attn_logit_softcapping", "nope"});
    attention.not_modelled("qk_gn", "group norms on queries and keys: none is assumed");
    attention.not_modelled("sliding_window_size", "attention within a window: full attention is assumed", {"-1"});
    attention.finish();
    ForeignMap ffn = block.section("ffn_config");
    const std::string kind = ffn.word("ffn_type").value_or("mptmlp");
    const auto ffn_width = ffn.whole("ffn_hidden_size", 1);
    ForeignMap function = ffn.section("ffn_act_fn");
    const std::string act = function.word("name").value_or("gelu");
    function.without_effect({"approximate"});
    function.finish();
    if (kind != "mptmlp" && kind != "mptglu" && kind != "mptgeglu")
      draft_.problem(ffn.take("ffn_type")->where, fmt::format("ffn_type {} is not modelled", in_quotes(kind)),
                     {"imported: mptmlp, mptglu, mptgeglu"});
    ffn.without_effect({"fc_type"});
    ffn.finish();
    const std::int64_t hidden = ffn_width.value_or(static_cast<std::int64_t>(ratio * static_cast<double>(width)));
    const bool learned = block.flag("learned_pos_emb").value_or(!alibi && !rope);
    loss_ = block.choice("loss_fn", {"fused_crossentropy", "torch_crossentropy"}).value_or("fused_crossentropy") == "fused_crossentropy"
                ? "fused"
                : "cross_entropy";
    draft_.model("hf_config",
                 fmt::format("{{model_type: mpt, architectures: [MPTForCausalLM], d_model: {}, n_heads: {}, n_layers: {}, vocab_size: {}, "
                             "max_seq_len: {}, no_bias: {}, "
                             "norm_type: {}, tie_word_embeddings: {}, learned_pos_emb: {}, "
                             "attn_config: {{attn_type: {}, kv_n_heads: {}, alibi: {}, rope: {}, qk_ln: {}, fused_qkv: {}}}, "
                             "ffn_config: {{ffn_type: {}, ffn_hidden_size: {}, ffn_act_fn: {{name: {}}}}}}}",
                             width, heads, layers, vocabulary, positions, no_bias, norm, tied, learned, type, kv_heads, alibi, rope,
                             qk_norm, fused, kind == "mptgeglu" ? "mptglu" : kind, hidden, act),
                 "model: d_model, n_heads, n_layers, attn_config, ffn_config, norm_type ...");
  }

  void hugging_face(ForeignMap& block, const ConfigNode& pretrained) {
    if (const auto flash = block.flag("use_flash_attention_2"); flash == false) attention_ = "plain";
    if (const auto kernel = block.word("attn_implementation"); kernel && *kernel == "eager") attention_ = "plain";
    if (lower(pretrained.text).find("dbrx") != std::string::npos) {
      // DBRX (132B): 16 experts of which 4 run, d_model 6144, 40 layers, 48 heads on 8 key-value heads.
      draft_.note("DBRX has Mixtral's layer with its own sizes (norms and the fused projection aside, the same matrices)");
      return draft_.model(
          "hf_config",
          "{model_type: mixtral, hidden_size: 6144, num_hidden_layers: 40, num_attention_heads: 48, num_key_value_heads: 8, "
          "intermediate_size: 10752, "
          "num_local_experts: 16, num_experts_per_tok: 4, vocab_size: 100352, max_position_embeddings: 32768, tie_word_embeddings: false}",
          "model.pretrained_model_name_or_path");
    }
    const ModelFacts facts = describe_model(draft_, options_, &pretrained, "model.pretrained_model_name_or_path");
    default_sequence_ = facts.sequence_length;
  }

  void batch() {
    const auto global = root_.whole(Keys{"global_train_batch_size", "train_batch_size"}, 1);
    const ConfigNode* micro_node = root_.take("device_train_microbatch_size");
    const std::int64_t micro =
        root_.whole("device_train_microbatch_size", 1).value_or(root_.whole("device_train_batch_size", 1).value_or(1));
    if (is_auto(micro_node)) draft_.note("the micro-batch is 1 (auto takes the largest that fits: `plan` finds it)");
    if (micro_node == nullptr)
      draft_.note("the micro-batch is " + std::to_string(micro) + " (the file has no device_train_microbatch_size)");
    const std::int64_t world = describe_cluster(draft_, options_, 0, 0);
    const std::int64_t accumulation = std::max<std::int64_t>(global.value_or(0) / world / micro, 1);
    if (global && *global != accumulation * micro * world)
      draft_.note(fmt::format("{} ranks with micro-batch {} do not give the global batch {} exactly", world, micro, *global));
    if (!sequence_) draft_.note(fmt::format("sequences of {} tokens (the file has no max_seq_len)", default_sequence_));
    draft_.training("sequence_length", std::to_string(sequence_.value_or(default_sequence_)),
                    sequence_ ? "max_seq_len" : "not in the file");
    draft_.training("micro_batch_size", std::to_string(micro), "device_train_microbatch_size");
    draft_.training("gradient_accumulation_steps", std::to_string(accumulation), "from global_train_batch_size");
  }

  void optimizer() {
    ForeignMap block = root_.section(Keys{"optimizer", "optimizers"});
    const ConfigNode* type = block.take("name");
    const OptimizerName name = type == nullptr ? OptimizerName{"adamw", "not in the file"} : optimizer_name(type->text);
    if (name.name.empty()) return draft_.problem(type->where, fmt::format("unknown optimizer {}", in_quotes(type->text)));
    if (type == nullptr) draft_.note("the optimizer is AdamW (not in the file)");
    block.without_effect({"lr", "betas", "eps", "weight_decay", "momentum", "param_groups", "disable_grad", "rms_lr"});
    block.finish();
    ForeignMap algorithms = root_.section("algorithms");
    ForeignMap clipping = algorithms.section("gradient_clipping");
    const auto threshold = clipping.real("clipping_threshold", 0);
    if (const auto how = clipping.word("clipping_type"); how && *how != "norm")
      draft_.ignore("algorithms.gradient_clipping.clipping_type", clipping.take("clipping_type")->where,
                    "clipping by " + *how + ": by norm is assumed", Effect::changes);
    clipping.finish();
    algorithms.without_effect({"low_precision_layernorm"});
    algorithms.finish();
    draft_.training("optimizer", threshold ? fmt::format("{{name: {}, clip_grad_norm: {}}}", name.name, *threshold) : name.name,
                    name.comment.empty() ? "optimizer.name" : name.comment);
  }

  /// The dtype behind Composer's `precision`.
  std::string compute_dtype() {
    const ConfigNode* node = root_.take("precision");
    if (node == nullptr) return "bf16";
    const std::string word = lower(node->text);
    if (word.ends_with("fp8")) {
      draft_.ignore("precision", node->where, "fp8 products are timed as bf16", Effect::changes);
      return "bf16";
    }
    const std::string dtype = dtype_by_name(word);
    if (dtype.empty())
      draft_.problem(node->where, fmt::format("unknown precision {}", in_quotes(node->text)),
                     {"allowed: fp32, amp_fp16, amp_bf16, amp_fp8"});
    return dtype;
  }

  void fsdp() {
    ForeignMap nested = root_.section("parallelism_config");
    const ConfigNode* node = root_.take("fsdp_config");
    if (const ConfigNode* inner = nested.take("fsdp"); node == nullptr) node = inner;
    nested.refuse("tp", "tensor parallelism is not data parallelism");
    nested.finish();
    const std::string dtype = compute_dtype();
    if (node == nullptr) {
      draft_.strategy("ddp", "no fsdp_config in the file");
      return draft_.training(
          "precision",
          dtype == "fp32" ? "fp32" : fmt::format("{{parameters: fp32, compute: {}, gradients: fp32, reduce: fp32, master: none}}", dtype),
          "precision");
    }
    ForeignMap block(node, "fsdp_config", draft_);
    draft_.strategy("fsdp1", "fsdp_config");
    fsdp_precision(block, dtype);
    if (block.on("activation_checkpointing")) draft_.training("activation_checkpointing", "full", "fsdp_config.activation_checkpointing");
    if (block.on("cpu_offload")) draft_.training("offload", "{parameters: cpu, optimizer: cpu}", "fsdp_config.cpu_offload");
    if (const ConfigNode* sharding = block.take("sharding_strategy")) {
      draft_.option("sharding_strategy", *sharding, "fsdp_config.sharding_strategy");
      const std::int64_t replicas = block.whole("data_parallel_replicate_degree", 1).value_or(options_.nodes);
      if (sharding->text.find("HYBRID") != std::string::npos && replicas > 1)
        draft_.option("replicate", std::to_string(replicas), "one replica a node");
    }
    block.without_effect({"state_dict_type", "activation_checkpointing_reentrant", "sync_module_states", "verbose",
                          "load_monolith_rank0_only", "auto_wrap", "flatten_parameters", "load_planner", "save_planner",
                          "sharded_ckpt_prefix_dir", "ignored_modules", "min_params", "load_fsdp_monolith_rank0_only",
                          "data_parallel_shard_degree", "process_group", "keep_low_precision_grads", "te_checkpoint_wrapper"});
    block.not_modelled("activation_cpu_offload", "checkpointed layer inputs move to the host: they are assumed to stay on the GPU");
    block.not_modelled("te_shard_fp8_weight", "weights are sharded and gathered in fp8: 16 bits are assumed");
    block.not_modelled("device_mesh", "a mesh of the file's own: one group of all ranks is assumed");
    block.rest_as_options();
    block.finish();
  }

  /// Composer, distributed/mosaic_parallelism.py, get_mixed_precision: FULL, DEFAULT, PURE or a map of dtypes.
  void fsdp_precision(ForeignMap& block, const std::string& dtype) {
    const ConfigNode* node = block.take("mixed_precision");
    if (node != nullptr && node->kind == ConfigNode::Kind::map) {
      ForeignMap map(node, "fsdp_config.mixed_precision", draft_);
      const std::string parameters = map.dtype("param_dtype").value_or("fp32");
      draft_.training("precision", precision_map(parameters, parameters, map.dtype("reduce_dtype").value_or(parameters), "fp32"),
                      "fsdp_config.mixed_precision");
      map.without_effect({"buffer_dtype", "keep_low_precision_grads", "cast_forward_inputs", "cast_root_forward_inputs"});
      return map.finish();
    }
    const std::string word = block.choice("mixed_precision", {"FULL", "DEFAULT", "PURE"}).value_or("DEFAULT");
    if (dtype == "fp32") return draft_.training("precision", "fp32", "precision");
    if (word == "FULL")
      return draft_.training("precision",
                             fmt::format("{{parameters: fp32, compute: {}, gradients: fp32, reduce: fp32, master: fp32}}", dtype),
                             "fsdp_config.mixed_precision");
    draft_.training("precision", precision_map(dtype, dtype, word == "PURE" ? dtype : "fp32", "fp32"),
                    "fsdp_config.mixed_precision: " + word);
  }

  ScenarioDraft& draft_;
  const ImportOptions& options_;
  bool foundry_;
  ForeignMap root_;
  std::optional<std::int64_t> sequence_;
  std::int64_t default_sequence_ = 2048;
  std::string attention_ = "flash", loss_;
};

Result<Imported> read_composer(const Source& source, const ImportOptions& options, bool foundry) {
  auto root = read_yaml(source);
  if (!root) return tl::unexpected(root.error());
  ScenarioDraft draft;
  draft.origin =
      (foundry ? "the LLM Foundry configuration " : "the Composer configuration ") + std::filesystem::path(source.name).filename().string();
  const ConfigNode* model = root->find("model");
  if (foundry && (model == nullptr || model->kind != ConfigNode::Kind::map)) {
    draft.problem(root->where, "not an LLM Foundry training configuration: it has no map 'model'");
    return std::move(draft).finish(options);
  }
  if (!foundry && root->kind != ConfigNode::Kind::map) {
    draft.problem(root->where, "a Composer configuration is a map");
    return std::move(draft).finish(options);
  }
  const ConfigNode plain = *root;
  interpolate(*root, plain);
  ComposerReader(*root, draft, options, foundry).read();
  return std::move(draft).finish(options);
}

}  // namespace

Result<Imported> import_llm_foundry(const Source& source, const ImportOptions& options) { return read_composer(source, options, true); }
Result<Imported> import_composer(const Source& source, const ImportOptions& options) { return read_composer(source, options, false); }

}  // namespace shardsim
