// SPDX-License-Identifier: Apache-2.0
#include "scenarios/importers/import_deepspeed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>

namespace shardsim {
namespace {

constexpr std::int64_t trainer_micro_batch = 8;  // TrainingArguments.per_device_train_batch_size
constexpr double trainer_clip = 1.0;             // TrainingArguments.max_grad_norm
constexpr std::int64_t most_ranks = std::int64_t{1} << 24;

/// train_batch_size = micro-batch x accumulation x world size: DeepSpeed's rule (runtime/config.py, _set_batch_related_parameters),
/// with the world size worked out where no file says it.
struct Batch {
  std::int64_t micro = 0, accumulation = 0, world = 0;
};

std::optional<Batch> solve_batch(std::int64_t total, std::int64_t micro, std::int64_t accumulation, std::int64_t world) {
  if (total == 0) return Batch{micro == 0 ? 1 : micro, accumulation == 0 ? 1 : accumulation, world == 0 ? 8 : world};
  if (micro > 0 && accumulation > 0) {
    if (micro > total || accumulation > total / micro || total % (micro * accumulation) != 0) return std::nullopt;
    return Batch{micro, accumulation, world == 0 ? total / (micro * accumulation) : world};
  }
  const std::array<std::int64_t, 5> candidates{world, 8, 4, 2, 1};
  for (const std::int64_t ranks : candidates) {
    if (ranks == 0 || total % ranks != 0) continue;
    const std::int64_t share = total / ranks;
    if (micro > 0 && share % micro == 0) return Batch{micro, share / micro, ranks};
    if (micro == 0 && accumulation == 0) return Batch{share, 1, ranks};
    if (micro == 0 && share % accumulation == 0) return Batch{share / accumulation, accumulation, ranks};
  }
  return std::nullopt;
}

/// Whether a strategy of ZeRO's other stages has an option of this name.
bool option_of_another_stage(std::string_view name) {
  for (const std::string_view strategy : {"zero1", "zero2", "zero3", "mics"}) {
    const StrategyInfo* info = find_strategy(strategy);
    if (info == nullptr) continue;
    for (const OptionSpec& spec : info->options)
      if (spec.name == name || spec.name == "stage3_" + std::string(name)) return true;
  }
  return false;
}

class DeepSpeedReader {
 public:
  DeepSpeedReader(const ConfigNode& tree, ScenarioDraft& draft, const DeepSpeedContext& context, const ImportOptions& options)
      : tree_(tree),
        draft_(draft),
        context_(context),
        options_(options),
        root_(&tree, "", draft),
        zero_(zero_block(), "zero_optimization", draft) {}

  void read() {
    stage();
    batch();
    precision();
    optimizer();
    offload();
    compile();
    zero();
    beyond();
    root_.finish();
  }

 private:
  /// zero_optimization: true is an old spelling of stage 1.
  const ConfigNode* zero_block() {
    const ConfigNode* node = root_.take("zero_optimization");
    if (node == nullptr || node->kind != ConfigNode::Kind::scalar) return node;
    const auto on = boolean_word(node->text);
    if (!on) {
      draft_.problem(node->where, "zero_optimization is a map, or true or false");
      return nullptr;
    }
    legacy_stage_ = *on ? 1 : 0;
    return nullptr;
  }

  void stage() {
    stage_ = zero_.whole("stage", 0, 3).value_or(legacy_stage_);
    const ConfigNode* shard =
        tree_.find("zero_optimization") == nullptr ? nullptr : tree_.find("zero_optimization")->find("mics_shard_size");
    const auto size = zero_.whole("mics_shard_size", -1);
    if (stage_ == 0) {
      draft_.strategy("naive_dp", "no ZeRO: DeepSpeed all-reduces the gradients after backward");
      draft_.option("all_reduce", "flat", "");
    } else if (size.value_or(-1) > 0 && stage_ == 3) {
      draft_.strategy("mics", "zero_optimization.mics_shard_size");
      draft_.option("mics_shard_size", *shard, "zero_optimization.mics_shard_size");
    } else {
      draft_.strategy(fmt::format("zero{}", stage_), "zero_optimization.stage");
    }
  }

  void batch() {
    const ConfigNode* total_node = root_.take("train_batch_size");
    const ConfigNode* micro_node = root_.take("train_micro_batch_size_per_gpu");
    const ConfigNode* accumulation_node = root_.take("gradient_accumulation_steps");
    const std::int64_t total = root_.whole("train_batch_size", 1).value_or(0);
    std::int64_t micro = root_.whole("train_micro_batch_size_per_gpu", 1).value_or(0);
    std::int64_t accumulation = root_.whole("gradient_accumulation_steps", 1).value_or(0);
    if (micro == 0 && total == 0) micro = context_.micro_batch > 0 ? context_.micro_batch : is_auto(micro_node) ? trainer_micro_batch : 0;
    if (accumulation == 0 && total == 0) accumulation = context_.accumulation;
    const auto solved = solve_batch(total, micro, accumulation, known_world());
    if (!solved || solved->world > most_ranks)
      return draft_.problem((total_node != nullptr ? total_node : &tree_)->where,
                            "no number of GPUs gives this train_batch_size with this micro-batch and accumulation (it is their product)");
    if (!draft_.has_training("sequence_length")) {
      draft_.training("sequence_length", std::to_string(context_.model.sequence_length), "not in the file");
      draft_.note(fmt::format("sequences of {} tokens (not in the file)", context_.model.sequence_length));
    }
    draft_.training("micro_batch_size", std::to_string(solved->micro),
                    from(micro_node, "train_micro_batch_size_per_gpu", total, context_.micro_batch));
    draft_.training("gradient_accumulation_steps", std::to_string(solved->accumulation),
                    from(accumulation_node, "gradient_accumulation_steps", total, context_.accumulation));
    cluster(solved->world, total != 0);
  }

  static std::string from(const ConfigNode* node, std::string key, std::int64_t total, std::int64_t argument) {
    if (node != nullptr && !is_auto(node)) return key;
    if (total != 0) return "from train_batch_size";
    if (argument != 0) return key + " is the trainer's argument";
    return is_auto(node) ? "auto: TrainingArguments' default" : "not in the file";
  }

  [[nodiscard]] std::int64_t known_world() const {
    const std::int64_t nodes = options_.nodes > 0 ? options_.nodes : context_.nodes;
    const std::int64_t gpus = options_.gpus_per_node > 0 ? options_.gpus_per_node : context_.gpus_per_node;
    return nodes > 0 || gpus > 0 ? std::max<std::int64_t>(nodes, 1) * (gpus > 0 ? gpus : 8) : 0;
  }

  void cluster(std::int64_t world, bool from_batch) {
    if (known_world() > 0) {
      describe_cluster(draft_, options_, context_.nodes, context_.gpus_per_node);
      return;
    }
    std::string comment = from_batch && world != 8 ? "from train_batch_size" : "";
    if (const auto group = zero_.whole("zero_hpz_partition_size"); group && *group > 1 && *group <= most_ranks && world % *group != 0) {
      world = std::lcm(world, *group);
      comment = "the least that zero_hpz_partition_size divides";
    }
    std::int64_t per_node = 8;
    while (world % per_node != 0) --per_node;
    describe_cluster(draft_, options_, comment.empty() ? 0 : world / per_node, comment.empty() ? 0 : per_node, comment);
  }

  /// A block such as fp16: on, off, left to the launcher, or not there.
  enum class Switch : std::uint8_t { absent, off, on, automatic };
  static Switch enabled(ForeignMap& block) {
    const ConfigNode* value = block.take("enabled");
    if (value == nullptr) return Switch::absent;
    if (is_auto(value)) return Switch::automatic;
    return block.on("enabled") ? Switch::on : Switch::off;
  }

  std::string from_launcher(const char* dtype) {
    if (context_.dtype.empty()) draft_.note(fmt::format("training runs with --{} (the file leaves bf16 and fp16 to the launcher)", dtype));
    return context_.dtype.empty() ? dtype : context_.dtype;
  }

  std::string model_dtype() {
    ForeignMap half = root_.section("fp16"), brain = root_.section(Keys{"bf16", "bfloat16"});
    const Switch fp16 = enabled(half), bf16 = enabled(brain);
    half.without_effect({"loss_scale", "loss_scale_window", "initial_scale_power", "hysteresis", "consecutive_hysteresis", "min_loss_scale",
                         "auto_cast", "loss_scale_window", "opt_level"});
    if (const ConfigNode* check = brain.take("check_grad_overflow");
        check != nullptr && !draft_.option("check_grad_overflow", *check, "bf16.check_grad_overflow"))
      brain.without_effect({"check_grad_overflow"});
    brain.without_effect({"immediate_grad_update", "auto_cast"});
    half_master_ = half.on("fp16_master_weights_and_grads") ? "fp16" : brain.on("bf16_master_weights_and_grads") ? "bf16" : "";
    half_states_ = brain.on("bf16_optimizer_states");
    half.finish();
    brain.finish();
    if (bf16 == Switch::on) return "bf16";
    if (fp16 == Switch::on) return "fp16";
    if (bf16 == Switch::automatic) return from_launcher("bf16");
    if (fp16 == Switch::automatic) return from_launcher("fp16");
    return "fp32";
  }

  void precision() {
    ForeignMap amp = root_.section("amp");
    const bool apex = amp.on("enabled");
    amp.without_effect({"opt_level", "loss_scale", "min_loss_scale", "max_loss_scale"});
    amp.finish();
    ForeignMap autocast = root_.section("torch_autocast");
    const bool casts = autocast.on("enabled");
    const std::string cast = autocast.dtype("dtype").value_or("bf16");
    autocast.without_effect({"lower_precision_safe_modules"});
    autocast.finish();
    const std::string model = model_dtype();
    ForeignMap types = root_.section("data_types");
    std::string gradients = types.dtype("grad_accum_dtype").value_or("");
    types.finish();
    const std::string reduce = root_.dtype("communication_data_type").value_or("");
    if (model == "fp32" && (apex || casts)) {
      const std::string compute = apex ? "fp16" : cast;
      return draft_.training("precision",
                             fmt::format("{{parameters: fp32, compute: {}, gradients: fp32, reduce: fp32, master: none}}", compute),
                             apex ? "amp" : "torch_autocast");
    }
    if (casts)
      draft_.note(fmt::format("torch_autocast over {} weights changes only the operations of autocast's fp32 list, which stay in {}", model,
                              model));
    if (stage_ == 0 && !gradients.empty() && gradients != model) {
      draft_.note("gradients accumulate in the dtype of the parameters");
      gradients.clear();
    }
    if (half_master_ == "bf16" && half_states_ && model == "bf16")
      return draft_.training("precision", "pure-bf16", "bf16.bf16_master_weights_and_grads, bf16.bf16_optimizer_states");
    if (!half_master_.empty())
      return draft_.training("precision", precision_map(model, half_master_, reduce, half_master_),
                             half_master_ + "_master_weights_and_grads");
    const bool plain = gradients.empty() && reduce.empty();
    if (plain && model == "bf16") return draft_.training("precision", "mixed", "bf16.enabled");
    if (plain && model == "fp32") return draft_.training("precision", "fp32", "neither fp16 nor bf16 is on in the file");
    draft_.training("precision", precision_map(model, gradients.empty() ? model : gradients, reduce, model == "fp32" ? "none" : "fp32"),
                    "fp16, bf16, data_types, communication_data_type");
  }

  void optimizer() {
    ForeignMap block = root_.section("optimizer");
    const ConfigNode* type = block.take("type");
    ForeignMap params = block.section("params");
    OptimizerName name{"adamw", "not in the file: the Trainer's default"};
    if (type != nullptr) name = optimizer_name(type->text);
    if (type == nullptr && !context_.optimizer.empty()) name = optimizer_name(context_.optimizer);
    if (name.name.empty())
      return draft_.problem((type != nullptr ? type : &tree_)->where,
                            fmt::format("unknown optimizer {}", in_quotes(type != nullptr ? type->text : context_.optimizer)));
    if (type == nullptr && context_.optimizer.empty()) draft_.note("the optimizer is AdamW (not in the file)");
    std::string fields = "name: " + name.name;
    const bool torch_adam = params.on("torch_adam");
    if (name.name.starts_with("adam")) fields += fmt::format(", implementation: {}", torch_adam ? "foreach" : "fused");
    if (const double clip = gradient_clipping(); clip > 0) fields += fmt::format(", clip_grad_norm: {}", clip);
    draft_.training("optimizer", "{" + fields + "}", name.comment.empty() ? "optimizer.type" : name.comment);
    params.without_effect({"lr",
                           "betas",
                           "eps",
                           "weight_decay",
                           "adam_w_mode",
                           "bias_correction",
                           "max_coeff",
                           "min_coeff",
                           "momentum",
                           "freeze_step",
                           "amsgrad",
                           "cuda_aware",
                           "comm_backend_name",
                           "coeff_beta",
                           "factor_max",
                           "factor_min",
                           "factor_threshold",
                           "set_grad_none",
                           "muon_lr",
                           "adam_lr",
                           "use_muon",
                           "ns_method",
                           "nesterov"});
    params.finish();
    block.without_effect({"legacy_fusion"});
    block.finish();
  }

  double gradient_clipping() {
    const ConfigNode* node = root_.take("gradient_clipping");
    if (is_auto(node) || (node == nullptr && context_.clip)) return context_.clip.value_or(trainer_clip);
    return root_.real("gradient_clipping", 0).value_or(0);
  }

  void compile() {
    const ConfigNode* node = root_.take("compile");
    if (node == nullptr) return;
    ForeignMap block(node, "compile", draft_);
    const bool deep = block.on("deepcompile"), disabled = block.on("disable");
    block.without_effect({"backend", "kwargs", "offload_activation", "offload_opt_states", "double_buffer", "symmetric_memory", "debug_log",
                          "free_activation", "keep_int_input_tensors", "keep_all_input_tensors", "sync_before_reduce", "sync_after_reduce",
                          "sync_before_allgather", "sync_after_allgather", "passes", "deepcompile_passes"});
    block.finish();
    if (!block || (disabled && !deep)) return;
    draft_.training("compile", "true", deep ? "compile.deepcompile" : "compile.disable");
    if (deep)
      draft_.ignore("compile.deepcompile", node->where,
                    "DeepCompile moves the gathers within the compiled graph: the order of ZeRO's hooks is assumed", Effect::changes);
  }

  void offload() {
    const std::string parameters = target("offload_param", "cpu_offload_params"), states = target("offload_optimizer", "cpu_offload");
    if (parameters != "none" || states != "none")
      draft_.training("offload", fmt::format("{{parameters: {}, optimizer: {}}}", parameters, states),
                      "zero_optimization.offload_param, offload_optimizer");
  }

  std::string target(std::string_view key, std::string_view legacy) {
    ForeignMap block = zero_.section(key);
    std::string device = block.choice("device", {"none", "cpu", "nvme"}).value_or("none");
    if (const auto ratio = block.real("ratio", 0, 1); ratio && *ratio < 1 && device != "none")
      draft_.ignore(fmt::format("zero_optimization.{}.ratio", key), block.take("ratio")->where,
                    fmt::format("Twin-Flow keeps {:.0f} % of the optimizer states on the GPU: all of them on the host are assumed instead",
                                100 * (1 - *ratio)),
                    Effect::changes);
    block.without_effect({"nvme_path", "buffer_count", "buffer_size", "max_in_cpu", "pin_memory", "pipeline_read", "pipeline_write",
                          "pipeline", "fast_init", "super_offload", "cpuadam_cores_perc"});
    block.finish();
    const bool old = zero_.on(legacy);
    return device == "none" && old ? "cpu" : device;
  }

  /// Options of the strategy, with "auto" by Hugging Face's rule.
  void zero() {
    const std::int64_t hidden = context_.model.hidden_size;
    automatic("reduce_bucket_size", hidden * hidden, "auto: hidden^2");
    automatic("stage3_prefetch_bucket_size", hidden * hidden * 9 / 10, "auto: 0.9 hidden^2");
    automatic("stage3_param_persistence_threshold", 10 * hidden, "auto: 10 hidden");
    zero_.without_effect({"stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save",
                          "stage3_gather_fp16_weights_on_model_save", "load_from_fp32_weights", "elastic_checkpoint",
                          "ignore_unused_parameters", "legacy_stage1", "log_trace_cache_warnings", "enable_sanity_checks",
                          "pipeline_loading_checkpoint", "override_module_apply", "cpu_offload_use_pin_memory",
                          "mics_hierarchical_params_gather"});
    zero_.rest_as_options();
    if (const ConfigNode* block = tree_.find("zero_optimization"); zero_ && block != nullptr)
      for (const auto& entry : block->entries)
        if (!draft_.has_option(entry.key) && option_of_another_stage(entry.key))
          zero_.without_effect({entry.key}, "an option of another ZeRO stage");
    for (const std::string_view key :
         {"contiguous_gradients", "round_robin_gradients", "allgather_partitions", "allgather_bucket_size", "reduce_scatter"})
      if (!draft_.has_option(key)) zero_.without_effect({key});
    zero_.not_modelled("zenflow",
                       "ZenFlow updates part of the gradients on the GPU and the rest later: plain optimizer offload is assumed");
    zero_.not_modelled("use_all_reduce_for_fetch_params", "parameters are fetched by all-reduce: all-gathers are assumed, half the bytes");
    zero_.not_modelled("stage3_use_all_reduce_for_fetch_params",
                       "parameters are fetched by all-reduce: all-gathers are assumed, half the bytes");
    zero_.not_modelled("module_granularity_threshold", "several small modules are fetched as one: each by itself is assumed", {"0"});
    zero_.not_modelled("stage3_module_granularity_threshold", "several small modules are fetched as one: each by itself is assumed", {"0"});
    zero_.not_modelled("allgather_sequential", "parameters are gathered one by one");
    zero_.not_modelled("stage3_allgather_sequential", "parameters are gathered one by one");
    if (const ConfigNode* patch = zero_.take("memory_efficient_linear"); patch != nullptr && zero_.flag("memory_efficient_linear") == false)
      draft_.ignore("zero_optimization.memory_efficient_linear", patch->where,
                    "F.linear is not replaced: every gathered weight then stays until its backward, which is not counted", Effect::changes);
    zero_.finish();
  }

  void automatic(std::string_view key, std::int64_t value, std::string comment) {
    if (!zero_ || !is_auto(zero_.take(key))) return;
    if (!draft_.has_option(key)) return zero_.without_effect({key}, "for ZeRO stage 3 only");
    draft_.option(key, std::to_string(value), std::move(comment));
  }

  /// What is not ZeRO, precision or batch.
  void beyond() {
    root_.without_effect({"steps_per_print",
                          "wall_clock_breakdown",
                          "scheduler",
                          "monitor_config",
                          "comms_config",
                          "comms_logger",
                          "tensorboard",
                          "csv_monitor",
                          "wandb",
                          "comet",
                          "flops_profiler",
                          "log",
                          "_comment",
                          "zero_allow_untested_optimizer",
                          "zero_force_ds_cpu_optimizer",
                          "prescale_gradients",
                          "gradient_predivide_factor",
                          "checkpoint",
                          "dump_state",
                          "memory_breakdown",
                          "aio",
                          "nebula",
                          "timers",
                          "dataloader_drop_last",
                          "autotuning",
                          "use_node_local_storage",
                          "graph_harvesting",
                          "train_steps",
                          "vocabulary_size",
                          "seq_parallel_communication_data_type",
                          "use_data_before_expert_parallel_",
                          "zero_force_ds_cpu_optimizer",
                          "elasticity"});
    ForeignMap checkpointing =
        root_.section("activation_checkpointing");  // of DeepSpeed's function; whether the model calls it is not here
    checkpointing.without_effect(
        {"partition_activations", "contiguous_memory_optimization", "number_checkpoints", "synchronize_checkpoint_boundary", "profile"});
    checkpointing.not_modelled("cpu_checkpointing", "layer inputs move to the host: they are assumed to stay on the GPU");
    checkpointing.finish();
    if (ForeignMap tensor = root_.section("tensor_parallel")) {
      if (const auto size = tensor.whole(Keys{"autotp_size", "tp_size"}, 0); size.value_or(1) > 1)
        draft_.ignore("tensor_parallel.autotp_size", tensor.node()->where,
                      fmt::format("tensor parallelism over {} ranks is not modelled: every rank is assumed to be a data-parallel one that "
                                  "holds the whole width",
                                  *size),
                      Effect::changes);
      tensor.without_effect({"tp_grain_size", "mpu", "dtype", "tensor_parallel", "injection_policy_tuple", "keep_module_on_host",
                             "replace_with_kernel_inject"});
      tensor.finish();
    }
    root_.not_modelled("sparse_attention", "block-sparse attention: full attention is assumed");
    root_.not_modelled("sparse_gradients", "embedding gradients travel as rows: whole tables are assumed");
    root_.not_modelled("pipeline", "pipeline stages: one stage is assumed");
    root_.not_modelled("compression_training", "weights and activations are compressed in training: none is assumed");
    root_.not_modelled("quantize_training", "weights are quantised in training: none is assumed");
    root_.not_modelled("progressive_layer_drop", "layers are skipped at random: all are assumed");
    root_.not_modelled("curriculum_learning", "sequences grow over training: full length is assumed");
    root_.not_modelled("data_efficiency", "sequences and tokens are dropped over training: all are assumed");
    root_.not_modelled("eigenvalue", "eigenvalues are computed beside training: not counted");
    root_.not_modelled("hybrid_engine", "generation between steps: not counted");
    root_.not_modelled("sequence_parallel_size", "sequences are split over ranks: whole sequences are assumed", {"1"});
    root_.not_modelled("disable_allgather", "all-gather of parameters by broadcasts");
  }

  const ConfigNode& tree_;
  ScenarioDraft& draft_;
  const DeepSpeedContext& context_;
  const ImportOptions& options_;
  std::int64_t legacy_stage_ = 0;
  ForeignMap root_, zero_;
  std::int64_t stage_ = 0;
  std::string half_master_;
  bool half_states_ = false;
};

/// `text` with comments (//, #, /* */) and commas before a closing bracket turned into blanks: every place stays where it was.
std::string without_comments(std::string text) {
  std::size_t comma = std::string::npos;  // the last token, if it was a comma
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      for (++at; at < text.size() && text[at] != '"' && text[at] != '\n'; ++at)
        if (text[at] == '\\') ++at;
      comma = std::string::npos;
    } else if (c == '#' || text.compare(at, 2, "//") == 0 || text.compare(at, 2, "/*") == 0) {
      const bool block = text.compare(at, 2, "/*") == 0;
      const std::size_t end = block ? text.find("*/", at) : text.find('\n', at);
      const std::size_t stop = end == std::string::npos ? text.size() : end + (block ? 2 : 0);
      for (std::size_t i = at; i < stop; ++i)
        if (text[i] != '\n') text[i] = ' ';
      at = stop == 0 ? 0 : stop - 1;
    } else if (c == ',') {
      comma = at;
    } else if (c == '}' || c == ']') {
      if (comma != std::string::npos) text[comma] = ' ';
      comma = std::string::npos;
    } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      comma = std::string::npos;
    }
  }
  return text;
}

}  // namespace

void draft_deepspeed(const ConfigNode& root, ScenarioDraft& draft, const DeepSpeedContext& context, const ImportOptions& options) {
  if (root.kind != ConfigNode::Kind::map) return draft.problem(root.where, "a DeepSpeed configuration is a map");
  DeepSpeedReader(root, draft, context, options).read();
}

Result<ConfigNode> read_deepspeed_json(const Source& source) { return read_json({source.name, without_comments(source.text)}); }

std::optional<ConfigNode> read_deepspeed_file(const ConfigNode& name, ScenarioDraft& draft) {
  namespace fs = std::filesystem;
  const fs::path written = name.text, folder = fs::path(name.where.source->name).parent_path();
  std::error_code error;
  for (const fs::path& path : {written, folder / written, folder / written.filename()}) {
    if (!fs::is_regular_file(path, error)) continue;
    auto tree = read_source(path.string()).and_then(read_deepspeed_json);
    if (tree) return std::move(*tree);
    draft.append(tree.error());
    return std::nullopt;
  }
  draft.problem(name.where, fmt::format("the DeepSpeed configuration '{}' is not there", name.text),
                {"looked in the current folder and next to this file"});
  return std::nullopt;
}

Result<Imported> import_deepspeed(const Source& source, const ImportOptions& options) {
  const auto root = read_deepspeed_json(source);
  if (!root) return tl::unexpected(root.error());
  ScenarioDraft draft;
  draft.origin = "the DeepSpeed configuration " + std::filesystem::path(source.name).filename().string();
  DeepSpeedContext context;
  context.model = describe_model(draft, options);
  draft_deepspeed(*root, draft, context, options);
  return std::move(draft).finish(options);
}

}  // namespace shardsim
