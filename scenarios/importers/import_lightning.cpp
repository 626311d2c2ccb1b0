// SPDX-License-Identifier: Apache-2.0
// LightningCLI's YAML (trainer: with a strategy by name, or by class with init_args) and LitGPT's.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/importers/import_deepspeed.hpp"
#include "scenarios/importers/import_fsdp.hpp"

namespace shardsim {
namespace {

/// Lightning's precision: "bf16-mixed", "bf16-true", "16-mixed", 32.
struct LightningPrecision {
  std::string dtype = "fp32";
  bool mixed = false;
};

class LightningReader {
 public:
  LightningReader(const ConfigNode& tree, ScenarioDraft& draft, const ImportOptions& options)
      : draft_(draft), options_(options), tree_(tree), root_(&tree, "", draft), trainer_(trainer_block(), trainer_path(), draft) {}

  void read() {
    const ModelFacts model = this->model();
    batch(model);
    read_precision();
    strategy(model);
    if (!deepspeed_) optimizer();
    rest();
  }

 private:
  const ConfigNode* trainer_block() {
    const ConfigNode* node = root_.take("trainer");
    litgpt_ = node == nullptr;
    return litgpt_ ? &tree_ : node;
  }
  [[nodiscard]] std::string trainer_path() const { return litgpt_ ? "" : "trainer"; }

  ModelFacts model() {
    const ConfigNode* named = root_.take(Keys{"model_name", "checkpoint_dir"});
    ForeignMap block(root_.node()->find("model"), "model", draft_);
    if (named == nullptr && root_.take("model") != nullptr && block) {
      ForeignMap init = block.section("init_args");
      named = init.take(Keys{"model_name", "model_name_or_path", "pretrained_model_name_or_path", "model_id"});
    }
    ModelFacts facts = describe_model(draft_, options_, named, litgpt_ ? "model_name" : "model.init_args");
    if (const auto rank = root_.whole("lora_r", 1)) lora(*rank);
    if (const auto quantize = root_.word("quantize"))
      draft_.model("quantization",
                   quantize->find("dq") != std::string::npos     ? "nf4-double"
                   : quantize->find("int8") != std::string::npos ? "int8"
                                                                 : "nf4",
                   "quantize");
    return facts;
  }

  void lora(std::int64_t rank) {
    std::string list;
    const auto add = [&](const char* key, bool fallback, std::string_view targets) {
      if (root_.flag(key).value_or(fallback)) list += (list.empty() ? "" : ", ") + std::string(targets);
    };
    add("lora_query", true, "q_proj");
    add("lora_key", false, "k_proj");
    add("lora_value", true, "v_proj");
    add("lora_projection", false, "o_proj");
    add("lora_mlp", false, "gate_proj, up_proj, down_proj");
    if (root_.on("lora_head")) draft_.note("adapters on the output layer are left out");
    draft_.model("trainable", fmt::format("{{lora: {{rank: {}, targets: [{}]}}}}", rank, list), "lora_r, lora_query, lora_value ...");
  }

  void batch(const ModelFacts& model) {
    ForeignMap data(root_.node()->find("data"), "data", draft_);
    ForeignMap init = data.section("init_args");
    ForeignMap train = root_.section("train");
    const Keys size{"micro_batch_size", "batch_size", "train_batch_size"},
        length{"max_seq_length", "max_length", "seq_length", "block_size"};
    auto micro = train.whole(size, 1), sequence = train.whole(length, 1), global = train.whole("global_batch_size", 1);
    if (!micro) micro = init.whole(size, 1);
    if (!sequence) sequence = init.whole(length, 1);
    auto accumulation = trainer_.whole("accumulate_grad_batches", 1);
    train.without_effect({"save_interval", "log_interval", "lr_warmup_steps", "lr_warmup_fraction", "epochs", "max_tokens", "max_steps",
                          "tie_embeddings", "learning_rate", "weight_decay", "beta1", "beta2", "min_lr"});
    if (const auto norm = train.real("max_norm", 0)) clip_ = norm;
    train.finish();
    nodes_ = trainer_.whole("num_nodes", 1).value_or(0);
    devices();
    const std::int64_t world = describe_cluster(draft_, options_, nodes_, gpus_);
    if (global && !accumulation) accumulation = std::max<std::int64_t>(*global / world / micro.value_or(1), 1);
    if (!micro) draft_.note("one sequence a rank (the batch size stands in the data module's code)");
    if (!sequence) draft_.note(fmt::format("sequences of {} tokens (not in the file)", model.sequence_length));
    micro_ = micro.value_or(1);
    accumulation_ = accumulation.value_or(1);
    draft_.training("sequence_length", std::to_string(sequence.value_or(model.sequence_length)),
                    sequence ? "max_seq_length" : "not in the file");
    draft_.training("micro_batch_size", std::to_string(micro_), micro ? "batch_size" : "not in the file");
    draft_.training("gradient_accumulation_steps", std::to_string(accumulation_),
                    global ? "from global_batch_size" : "accumulate_grad_batches");
  }

  /// A number, a list of devices, "auto" or -1.
  void devices() {
    const ConfigNode* node = trainer_.take("devices");
    if (node == nullptr || is_auto(node)) return;
    if (node->kind == ConfigNode::Kind::list) {
      gpus_ = static_cast<std::int64_t>(node->items.size());
      return;
    }
    const auto count = trainer_.whole("devices", -1);
    gpus_ = std::max<std::int64_t>(count.value_or(0), 0);
  }

  void read_precision() {
    const ConfigNode* node = trainer_.take("precision");
    if (node == nullptr) return;
    const std::string word = lower(node->text);
    precision_.mixed = word.ends_with("-mixed") || word == "16" || word == "bf16";
    const std::string base = word.substr(0, word.find('-'));
    if (word == "transformer-engine" || word == "transformer-engine-float16") {
      draft_.ignore("trainer.precision", node->where, "fp8 products of Transformer Engine: bf16 ones are assumed instead", Effect::changes);
      precision_ = {"bf16", false};
      return;
    }
    precision_.dtype = base == "bf16" ? "bf16" : base == "16" || base == "fp16" ? "fp16" : base == "32" || base == "fp32" ? "fp32" : "";
    if (precision_.dtype.empty())
      draft_.problem(node->where, fmt::format("unknown precision {}", in_quotes(node->text)),
                     {"allowed: 32, 16-mixed, bf16-mixed, 16-true, bf16-true"});
  }

  [[nodiscard]] std::string replicated_precision() const {
    if (precision_.mixed) return autocast_precision(precision_.dtype);
    if (precision_.dtype == "bf16") return "pure-bf16";
    return precision_.dtype == "fp32" ? "fp32"
                                      : fmt::format("{{parameters: {0}, gradients: {0}, reduce: {0}, master: none}}", precision_.dtype);
  }

  void strategy(const ModelFacts& model) {
    const ConfigNode* node = trainer_.take("strategy");
    std::string name = "auto";
    const ConfigNode* init = nullptr;
    if (node != nullptr && node->kind == ConfigNode::Kind::map) {
      ForeignMap block(node, "trainer.strategy", draft_);
      name = block.word("class_path").value_or("");
      name = name.substr(name.find_last_of('.') + 1);
      init = block.take("init_args");
      block.without_effect({"dict_kwargs"});
      block.finish();
    } else if (node != nullptr) {
      name = node->text;
    }
    ForeignMap arguments(init, "trainer.strategy.init_args", draft_);
    const std::string key = lower(name);
    if (key.starts_with("fsdp")) {
      fsdp(arguments);
    } else if (key.starts_with("deepspeed")) {
      deepspeed(key, arguments, model);
    } else if (key.starts_with("ddp") || key == "auto" || key.starts_with("singledevice")) {
      if (litgpt_ && key == "auto") return fsdp(arguments);
      draft_.training("precision", replicated_precision(), "trainer.precision");
      draft_.strategy("ddp", "trainer.strategy");
      for (const char* option : {"bucket_cap_mb", "gradient_as_bucket_view", "find_unused_parameters", "static_graph"})
        if (const ConfigNode* value = arguments.take(option);
            value != nullptr && !draft_.option(option, *value, std::string("trainer.strategy.init_args.") + option))
          arguments.without_effect({option});
      arguments.without_effect({"process_group_backend", "timeout", "start_method", "broadcast_buffers"});
    } else {
      draft_.problem(node->where, fmt::format("strategy {} is not data parallelism that is modelled", in_quotes(name)),
                     {"imported: ddp, fsdp, deepspeed and their classes"});
    }
    arguments.finish();
  }

  void fsdp(ForeignMap& arguments) {
    if (precision_.mixed) {
      // FSDPPrecision("bf16-mixed"): param_dtype, reduce_dtype and buffer_dtype are all of it; the weights stay fp32.
      draft_.training("precision", precision_map(precision_.dtype, precision_.dtype, precision_.dtype, "fp32"), "trainer.precision");
    } else {
      draft_.training("precision", replicated_precision(), "trainer.precision");
    }
    draft_.strategy("fsdp1", litgpt_ ? "LitGPT shards with FSDP" : "trainer.strategy");
    if (arguments.take("activation_checkpointing_policy") != nullptr || arguments.take("activation_checkpointing") != nullptr || litgpt_)
      draft_.training("activation_checkpointing", "full", litgpt_ ? "LitGPT checkpoints its blocks" : "activation_checkpointing_policy");
    if (arguments.on("cpu_offload")) draft_.training("offload", "{parameters: cpu, optimizer: cpu}", "cpu_offload");
    if (const ConfigNode* sharding = arguments.take("sharding_strategy")) {
      draft_.option("sharding_strategy", *sharding, "sharding_strategy");
      const std::int64_t replicas = options_.nodes > 0 ? options_.nodes : nodes_;
      if (sharding->text.find("HYBRID") != std::string::npos && replicas > 1)
        draft_.option("replicate", std::to_string(replicas), "one replica a node");
    }
    for (const char* option : {"limit_all_gathers", "use_orig_params", "forward_prefetch", "backward_prefetch"})
      if (const ConfigNode* value = arguments.take(option))
        draft_.option(option, *value, std::string("trainer.strategy.init_args.") + option);
    arguments.without_effect({"state_dict_type", "auto_wrap_policy", "process_group_backend", "timeout", "sync_module_states",
                              "device_mesh", "mixed_precision", "ignored_modules"});
  }

  /// "deepspeed_stage_2_offload" or DeepSpeedStrategy's own arguments.
  void deepspeed(const std::string& name, ForeignMap& arguments, const ModelFacts& model) {
    deepspeed_ = true;
    DeepSpeedContext context{.model = model, .nodes = nodes_, .gpus_per_node = gpus_, .micro_batch = micro_, .accumulation = accumulation_};
    context.dtype = precision_.dtype;
    context.clip = trainer_.real("gradient_clip_val", 0).value_or(0);
    if (const ConfigNode* config = arguments.take("config")) {
      if (config->kind == ConfigNode::Kind::map) return draft_deepspeed(*config, draft_, context, options_);
      if (const auto tree = read_deepspeed_file(*config, draft_)) draft_deepspeed(*tree, draft_, context, options_);
      return;
    }
    ConfigNode root, zero;
    const Where where = tree_.where;
    const auto scalar = [&](std::string text) {
      ConfigNode node;
      node.kind = ConfigNode::Kind::scalar;
      node.where = where;
      node.text = std::move(text);
      return node;
    };
    root.kind = zero.kind = ConfigNode::Kind::map;
    root.where = zero.where = where;
    const std::size_t digit = name.find_first_of("0123");
    zero.entries.push_back({"stage", where, scalar(digit == std::string::npos ? "2" : name.substr(digit, 1))});
    const auto device = [&](const char* key) {
      ConfigNode block;
      block.kind = ConfigNode::Kind::map;
      block.where = where;
      block.entries.push_back({"device", where, scalar("cpu")});
      zero.entries.push_back({key, where, block});
    };
    const bool offload = name.ends_with("_offload");
    if (offload || arguments.on("offload_optimizer")) device("offload_optimizer");
    if ((offload && name.find('3') != std::string::npos) || arguments.on("offload_parameters")) device("offload_param");
    for (const char* key : {"stage", "overlap_comm", "contiguous_gradients", "reduce_bucket_size", "allgather_bucket_size",
                            "sub_group_size", "reduce_scatter"})
      if (const ConfigNode* value = arguments.take(key)) {
        std::erase_if(zero.entries, [&](const auto& entry) { return entry.key == key; });
        zero.entries.push_back({key, where, *value});
      }
    arguments.without_effect({"zero_optimization",
                              "zero_allow_untested_optimizer",
                              "logging_batch_size_per_gpu",
                              "logging_level",
                              "pin_memory",
                              "loss_scale",
                              "initial_scale_power",
                              "loss_scale_window",
                              "hysteresis",
                              "min_loss_scale",
                              "remote_device",
                              "nvme_path",
                              "params_buffer_count",
                              "params_buffer_size",
                              "max_in_cpu",
                              "partition_activations",
                              "cpu_checkpointing",
                              "contiguous_memory_optimization",
                              "synchronize_checkpoint_boundary",
                              "load_full_weights",
                              "process_group_backend",
                              "timeout",
                              "exclude_frozen_parameters",
                              "allgather_partitions",
                              "offload_params_device",
                              "offload_optimizer_device",
                              "optimizer_buffer_count",
                              "block_size",
                              "queue_depth",
                              "single_submit",
                              "overlap_events",
                              "thread_count"});
    root.entries.push_back({"zero_optimization", where, zero});
    if (precision_.dtype != "fp32") {
      ConfigNode block;
      block.kind = ConfigNode::Kind::map;
      block.where = where;
      block.entries.push_back({"enabled", where, scalar("true")});
      root.entries.push_back({precision_.dtype, where, block});
    }
    draft_deepspeed(root, draft_, context, options_);
  }

  void optimizer() {
    const ConfigNode* node = root_.take("optimizer");
    OptimizerName name{"adamw", "not in the file"};
    if (node != nullptr) {
      const ConfigNode* type = node->kind == ConfigNode::Kind::map ? node->find("class_path") : node;
      if (type != nullptr) name = optimizer_name(type->text);
      if (name.name.empty()) return draft_.problem(type->where, fmt::format("unknown optimizer {}", in_quotes(type->text)));
    } else {
      draft_.note("the optimizer is AdamW (it stands in the module's code)");
    }
    if (!clip_) clip_ = trainer_.real("gradient_clip_val", 0);
    draft_.training("optimizer", clip_ && *clip_ > 0 ? fmt::format("{{name: {}, clip_grad_norm: {}}}", name.name, *clip_) : name.name,
                    name.comment.empty() ? "optimizer, gradient_clip_val" : name.comment);
  }

  void rest() {
    const std::vector<std::string_view> trainer{"accelerator",
                                                "max_epochs",
                                                "min_epochs",
                                                "max_steps",
                                                "min_steps",
                                                "max_time",
                                                "limit_train_batches",
                                                "limit_val_batches",
                                                "limit_test_batches",
                                                "limit_predict_batches",
                                                "overfit_batches",
                                                "val_check_interval",
                                                "check_val_every_n_epoch",
                                                "num_sanity_val_steps",
                                                "log_every_n_steps",
                                                "enable_checkpointing",
                                                "enable_progress_bar",
                                                "enable_model_summary",
                                                "deterministic",
                                                "benchmark",
                                                "inference_mode",
                                                "use_distributed_sampler",
                                                "profiler",
                                                "detect_anomaly",
                                                "barebones",
                                                "plugins",
                                                "sync_batchnorm",
                                                "reload_dataloaders_every_n_epochs",
                                                "default_root_dir",
                                                "logger",
                                                "callbacks",
                                                "fast_dev_run",
                                                "gradient_clip_algorithm",
                                                "model_registry",
                                                "enable_autolog_hparams"};
    trainer_.without_effect(trainer);
    if (!litgpt_) trainer_.finish();
    root_.without_effect({"seed_everything",
                          "ckpt_path",
                          "lr_scheduler",
                          "model",
                          "data",
                          "out_dir",
                          "eval",
                          "seed",
                          "logger_name",
                          "optimizer",
                          "access_token",
                          "lora_alpha",
                          "lora_dropout",
                          "resume",
                          "initial_checkpoint_dir",
                          "tokenizer_dir",
                          "model_config",
                          "log",
                          "devices",
                          "num_nodes",
                          "precision",
                          "initial_checkpoint",
                          "init_from"});
    if (!litgpt_) root_.finish();
  }

  ScenarioDraft& draft_;
  const ImportOptions& options_;
  const ConfigNode& tree_;
  ForeignMap root_;
  bool litgpt_ = false;
  ForeignMap trainer_;
  LightningPrecision precision_;
  std::int64_t nodes_ = 0, gpus_ = 0, micro_ = 1, accumulation_ = 1;
  std::optional<double> clip_;
  bool deepspeed_ = false;
};

}  // namespace

Result<Imported> import_lightning(const Source& source, const ImportOptions& options) {
  const auto root = read_yaml(source);
  if (!root) return tl::unexpected(root.error());
  ScenarioDraft draft;
  draft.origin = "the Lightning configuration " + std::filesystem::path(source.name).filename().string();
  if (root->find("trainer") == nullptr && root->find("model_name") == nullptr && root->find("checkpoint_dir") == nullptr) {
    draft.problem(root->where, "neither a LightningCLI configuration (no 'trainer') nor LitGPT's (no 'model_name' or 'checkpoint_dir')");
    return std::move(draft).finish(options);
  }
  LightningReader(*root, draft, options).read();
  return std::move(draft).finish(options);
}

}  // namespace shardsim
