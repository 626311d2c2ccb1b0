// SPDX-License-Identifier: Apache-2.0
// torchtitan's TOML job files (before its Python registries), and those of KempnerForge, which name the same things a little differently.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/importers/foreign_map.hpp"
#include "sim/config/toml.hpp"

namespace shardsim {
namespace {

/// Width of the feed-forward layer of Llama's reference code: two thirds of 4 d, scaled, rounded up to a multiple.
std::int64_t feed_forward_width(std::int64_t d, double multiplier, std::int64_t multiple) {
  const auto scaled = static_cast<std::int64_t>(multiplier * static_cast<double>(8 * d / 3));
  return ceil_div(scaled, multiple) * multiple;
}

class TorchtitanReader {
 public:
  TorchtitanReader(const ConfigNode& tree, ScenarioDraft& draft, const ImportOptions& options)
      : draft_(draft),
        options_(options),
        root_(&tree, "", draft),
        training_(root_.section(Keys{"training", "train"})),
        parallelism_(root_.section(Keys{"parallelism", "distributed"})),
        experimental_(root_.section("experimental")) {}

  void read() {
    degrees();
    model();
    batch();
    float8();
    training();
    optimizer();
    strategy();
    root_.without_effect({"job", "profiling", "metrics", "lr_scheduler", "scheduler", "checkpoint", "comm", "data", "validation", "debug",
                          "fault_tolerance", "memory_estimation", "eval", "logging"});
    training_.without_effect({"max_steps", "steps", "seed", "dataset", "dataset_path", "warmup_steps", "gc_freq", "gc_debug",
                              "deterministic", "data_parallel_degree", "data_parallel_type", "debug_moe_force_load_balance",
                              "enable_fsdp_float8_all_gather_precompute", "precompute_float8_dynamic_scale_for_fsdp",
                              "loss_parallel_enabled"});
    parallelism_.without_effect(
        {"nccl_timeout_sec", "pipeline_parallel_schedule", "pipeline_parallel_split_points", "pipeline_parallel_microbatches",
         "pipeline_parallel_microbatch_size", "pipeline_parallel_layers_per_stage", "pipeline_parallel_schedule_csv",
         "pipeline_parallel_first_stage_less_layers", "pipeline_parallel_last_stage_less_layers", "module_fqns_per_model_part",
         "context_parallel_rotate_method", "enable_async_tensor_parallel", "disable_loss_parallel", "pp_schedule"});
    parallelism_.not_modelled("enable_compiled_autograd", "compiled autograd: autograd's own order is assumed");
    experimental_.without_effect({"pipeline_parallel_schedule", "pipeline_parallel_split_points", "pipeline_parallel_microbatches",
                                  "enable_async_tensor_parallel", "custom_import", "custom_args_module", "custom_model_path",
                                  "context_parallel_rotate_method"});
    experimental_.not_modelled("enable_compiled_autograd", "compiled autograd: autograd's own order is assumed");
    for (ForeignMap* map : {&training_, &parallelism_, &experimental_}) map->finish();
    root_.finish();
  }

 private:
  /// A degree by its names in any of the three tables that have held it.
  std::int64_t degree(const Keys& keys, std::int64_t fallback) {
    std::optional<std::int64_t> found;
    for (ForeignMap* map : {&parallelism_, &training_, &experimental_}) {
      const auto here = map->whole(keys, -1);
      if (!found) found = here;
    }
    return found.value_or(fallback);
  }

  /// Dimensions beside data parallelism: the job would be another one without them.
  void beside(const Keys& keys, const std::string& what) {
    const std::int64_t ranks = degree(keys, 1);
    if (ranks <= 1) return;
    for (ForeignMap* map : {&parallelism_, &training_, &experimental_})
      if (const ConfigNode* node = map->take(keys))
        return draft_.problem(node->where,
                              fmt::format("{} = {}: {} is not modelled beside data parallelism", map->source(keys), ranks, what));
  }

  void degrees() {
    beside({"tensor_parallel_degree", "tp"}, "tensor parallelism");
    beside({"pipeline_parallel_degree", "pp"}, "pipeline parallelism");
    beside({"context_parallel_degree", "cp"}, "context parallelism");
    beside({"expert_tensor_parallel_degree"}, "tensor parallelism of experts");
    replicas_ = std::max<std::int64_t>(degree({"data_parallel_replicate_degree", "dp_replicate"}, 1), 1);
    shards_ = degree({"data_parallel_shard_degree", "dp_shard"}, -1);
    experts_ = std::max<std::int64_t>(degree({"expert_parallel_degree", "ep"}, 1), 1);
  }

  void model() {
    ForeignMap block = root_.section("model");
    positions_ = block.whole("max_seq_len", 1).value_or(0);
    const ConfigNode* name = block.take("name");
    const auto flavor = block.word("flavor");
    for (const std::string& converter : block.words("converters")) converters_.push_back(converter);
    if (!options_.model.empty()) {
      describe(options_);
      return block.all_without_effect("--model was given");
    }
    if (block.take("dim") != nullptr) {
      llama(block);
    } else if (name != nullptr) {
      named_model(*name, flavor);
    } else {
      describe(options_);
    }
    block.without_effect(
        {"tokenizer_path", "hf_assets_path", "tokenizer_path", "print_after_conversion", "norm_type", "custom_config", "description"});
    block.finish();
  }

  void describe(const ImportOptions& options) {
    const ModelFacts facts = describe_model(draft_, options);
    default_sequence_ = facts.sequence_length;
  }

  void named_model(const ConfigNode& name, const std::optional<std::string>& flavor) {
    ConfigNode named = name;
    named.text = name.text + (flavor ? "-" + *flavor : "");
    if (named.text == "llama3-405B") named.text = "llama-3.1-405b";
    if (named.text == "deepseek_v3-671B") named.text = "deepseek-v3";
    const ModelFacts facts = describe_model(draft_, options_, &named, "model.name, model.flavor");
    default_sequence_ = facts.sequence_length;
  }

  /// Llama by the names of its reference code.
  void llama(ForeignMap& block) {
    const auto number = [&](std::string_view key, std::int64_t fallback) { return block.whole(key, 1, 1 << 24).value_or(fallback); };
    const std::int64_t d = number("dim", 4096), layers = number("n_layers", 32), heads = number("n_heads", 32),
                       kv_heads = number("n_kv_heads", heads);
    const std::int64_t vocabulary = number("vocab_size", 32000), multiple = number("multiple_of", 256);
    const double multiplier = block.real("ffn_dim_multiplier", 0, 1000).value_or(1.0);
    const std::int64_t width = number("ffn_hidden_dim", feed_forward_width(d, multiplier, multiple));
    const bool tied = block.on("tie_embeddings");
    block.without_effect({"norm_type", "activation", "rope_theta", "norm_eps"}, "Llama's layer is taken");
    draft_.model("hf_config",
                 fmt::format("{{model_type: llama, hidden_size: {}, num_hidden_layers: {}, num_attention_heads: {}, "
                             "num_key_value_heads: {}, intermediate_size: {}, "
                             "vocab_size: {}, max_position_embeddings: {}, tie_word_embeddings: {}}}",
                             d, layers, heads, kv_heads, width, vocabulary, positions_ > 0 ? positions_ : 8192, tied),
                 "model: dim, n_layers, n_heads ...");
  }

  void batch() {
    const Keys micro_key{"local_batch_size", "batch_size"}, accumulation_key{"gradient_accumulation_steps", "grad_accum_steps"};
    const auto micro = training_.whole(micro_key, 1);
    const auto global = training_.whole("global_batch_size", -1);
    std::int64_t accumulation = training_.whole(accumulation_key, 1).value_or(1);
    cluster(shards_ > 0 ? shards_ * replicas_ : 0);
    const bool from_global = global.value_or(-1) > 0;
    if (from_global) {
      accumulation = std::max<std::int64_t>(*global / world_ / micro.value_or(1), 1);
      if (accumulation * world_ * micro.value_or(1) != *global)
        draft_.note(
            fmt::format("{} ranks with micro-batch {} do not give the global batch {} exactly", world_, micro.value_or(1), *global));
    }
    const auto length = training_.whole("seq_len", 1);
    const std::int64_t fallback = positions_ > 0 ? positions_ : default_sequence_;
    if (!length) draft_.note(fmt::format("sequences of {} tokens (not in the file)", fallback));
    if (!micro) draft_.note("one sequence a rank and micro-batch (not in the file)");
    draft_.training("sequence_length", std::to_string(length.value_or(fallback)), length ? training_.source("seq_len") : "not in the file");
    draft_.training("micro_batch_size", std::to_string(micro.value_or(1)), micro ? training_.source(micro_key) : "not in the file");
    draft_.training("gradient_accumulation_steps", std::to_string(accumulation),
                    from_global ? "from global_batch_size" : training_.source(accumulation_key));
  }

  void cluster(std::int64_t world) {
    if (world == 0 || options_.nodes > 0) {
      const std::int64_t nodes = options_.nodes > 0 ? options_.nodes : std::max<std::int64_t>(replicas_ / 8, 1);
      world_ = describe_cluster(draft_, options_, nodes > 1 ? nodes : 0, 0);
      if (world > 0 && world != world_)
        draft_.problem(parallelism_.node() != nullptr ? parallelism_.node()->where : root_.node()->where,
                       fmt::format("the file's degrees need {} ranks, --nodes and --gpus-per-node give {}", world, world_));
      return;
    }
    std::int64_t per_node = 8;
    while (world % per_node != 0) --per_node;
    world_ = describe_cluster(draft_, options_, world / per_node, per_node, "replicas x shards of the file");
  }

  void training() {
    const std::string stored = training_.dtype("dtype").value_or("fp32");
    const std::string parameters = training_.dtype("mixed_precision_param").value_or("bf16");
    const std::string reduce = training_.dtype("mixed_precision_reduce").value_or("fp32");
    const std::string compute = fp8_ ? "compute: fp8, " : "";
    const std::string source =
        fp8_ ? "mixed_precision_param, mixed_precision_reduce, float8" : "training.mixed_precision_param, mixed_precision_reduce";
    if (stored == "fp32" && parameters == "fp32" && !fp8_) {
      draft_.training("precision", "fp32", source);
    } else {
      draft_.training("precision",
                      fmt::format("{{parameters: {0}, {1}gradients: {0}, reduce: {2}, master: {3}}}", parameters, compute, reduce, stored),
                      stored == "fp32" ? source : "training.dtype");
    }
    draft_.training("stack", "torchtitan", "what the software costs");
    compile();
    if (training_.on("enable_cpu_offload")) draft_.training("offload", "{parameters: cpu, optimizer: cpu}", "training.enable_cpu_offload");
    checkpointing();
  }

  void compile() {
    ForeignMap block = root_.section("compile");
    const bool old = training_.on(Keys{"compile", "compile_model"}), enabled = block.on("enable");
    const auto listed = block.words("components");
    block.without_effect({"backend"});
    block.finish();
    const auto has = [&](std::string_view part) { return listed.empty() || std::find(listed.begin(), listed.end(), part) != listed.end(); };
    if (old || (enabled && has("model")))
      draft_.training("compile", "true", old ? "training.compile" : "compile.enable, compile.components");
    if (enabled && has("loss")) draft_.training("loss", "fused", "compile.components: the loss is compiled");
  }

  void checkpointing() {
    ForeignMap block = root_.section("activation_checkpoint");
    const auto mode = block ? block.word("mode") : training_.word(Keys{"activation_checkpointing", "ac"});
    const ConfigNode* option = block.take("selective_ac_option");
    block.without_effect({"per_op_sac_force_recompute_mm_shapes_by_fqns", "early_stop", "preserve_rng_state", "determinism_check", "debug",
                          "memory_budget", "visualize_memory_budget_pareto"});
    block.finish();
    const std::string word = mode ? lower(*mode) : "none";
    const std::string source = block ? "activation_checkpoint.mode" : "activation_checkpointing";
    if (word == "full") {
      draft_.training("activation_checkpointing", "full", source);
    } else if (word == "selective" && option != nullptr && option->text != "op") {
      const auto every = whole_number(option);
      if (!every || *every < 1)
        return draft_.problem(option->where, fmt::format("expected 'op' or every how many layers, got {}", in_quotes(option->text)));
      draft_.training("activation_checkpointing", fmt::format("{{every: {}}}", *every), "activation_checkpoint.selective_ac_option");
    } else if (word == "selective") {
      draft_.training("activation_checkpointing", "selective_ops",
                      option == nullptr ? "which selection is not in the file" : "activation_checkpoint.selective_ac_option");
    } else if (word != "none") {
      const ConfigNode* node = block ? block.take("mode") : training_.take(Keys{"activation_checkpointing", "ac"});
      draft_.ignore(source, node->where, fmt::format("activation checkpointing {}: none is assumed", in_quotes(word)), Effect::changes);
    }
  }

  void optimizer() {
    ForeignMap block = root_.section("optimizer");
    const ConfigNode* type = block.take("name");
    const OptimizerName name = type == nullptr ? OptimizerName{"adamw", "not in the file"} : optimizer_name(type->text);
    if (name.name.empty()) return draft_.problem(type->where, fmt::format("unknown optimizer {}", in_quotes(type->text)));
    std::string how = block.choice("implementation", {"fused", "foreach", "for-loop"}).value_or("fused");
    if (block.flag("fused") == false) how = "foreach";
    if (how == "for-loop") how = "for_loop";
    const double clip = training_.real(Keys{"max_norm", "grad_clip_norm"}, 0).value_or(1.0);
    draft_.training("optimizer", fmt::format("{{name: {}, implementation: {}, clip_grad_norm: {}}}", name.name, how, clip),
                    name.comment.empty() ? "optimizer.name, training.max_norm" : name.comment);
    block.without_effect({"lr", "eps", "beta1", "beta2", "betas", "weight_decay", "min_lr", "min_lr_ratio"});
    block.not_modelled("early_step_in_backward", "the optimizer steps within backward: a step after it is assumed");
    block.finish();
  }

  void strategy() {
    draft_.strategy("fsdp2", "torchtitan shards with FSDP2");
    draft_.option("wrap", "torchtitan", "embedding, blocks and head are units of their own");
    if (replicas_ > 1) draft_.option("replicate", std::to_string(replicas_), "data_parallel_replicate_degree");
    if (experts_ > 1) draft_.option("expert_parallel_size", std::to_string(experts_), "expert_parallel_degree");
    const Keys key{"fsdp_reshard_after_forward", "reshard_after_forward"};
    const auto reshard = parallelism_.choice(key, {"default", "always", "never", "true", "false"});
    if (!reshard || *reshard == "default") return;
    draft_.option("reshard_after_forward", *reshard == "never" || *reshard == "false" ? "false" : "true", parallelism_.source(key));
    if (*reshard == "always") draft_.option("reshard_root_after_forward", "true", "norm and head too");
  }

  /// float8 linear layers: a converter of the model, in the old layout a switch.
  void float8() {
    ForeignMap quantize = root_.section("quantize");
    ForeignMap linear = quantize.section("linear");
    quantize.all_without_effect("see the model's converters");
    ForeignMap fresh = linear.section("float8"), old = root_.section("float8"), mx = root_.section("mx"), new_mx = linear.section("mx");
    linear.finish();
    for (ForeignMap* map : {&fresh, &old}) {
      const bool on = map->on("enable_float8_linear") || converts("float8");
      fp8_ = fp8_ || on;
      const ConfigNode* gather = map->take("enable_fsdp_float8_all_gather");
      if (on && map->on("enable_fsdp_float8_all_gather"))
        draft_.ignore(map->source("enable_fsdp_float8_all_gather"), gather->where,
                      "float8 all-gathers: 16-bit ones are assumed instead, twice the bytes", Effect::changes);
      map->all_without_effect("recipe of the float8 conversion");
    }
    mx.all_without_effect("recipe of the mx conversion");
    new_mx.all_without_effect("recipe of the mx conversion");
    for (const std::string& converter : converters_)
      if (converter.find("float8") == std::string::npos)
        draft_.ignore("model.converters", root_.take("model")->where,
                      fmt::format("{}: 16-bit products are assumed instead", in_quotes(converter)), Effect::changes);
  }

  [[nodiscard]] bool converts(std::string_view what) const {
    return std::any_of(converters_.begin(), converters_.end(), [&](const std::string& c) { return c.find(what) != std::string::npos; });
  }

  ScenarioDraft& draft_;
  const ImportOptions& options_;
  ForeignMap root_, training_, parallelism_, experimental_;
  std::vector<std::string> converters_;
  bool fp8_ = false;  ///< linear modules are converted
  std::int64_t positions_ = 0, default_sequence_ = 2048, replicas_ = 1, shards_ = -1, experts_ = 1, world_ = 8;
};

}  // namespace

Result<Imported> import_torchtitan(const Source& source, const ImportOptions& options) {
  auto root = read_toml(source);
  if (!root) {
    Problems problems;
    for (const auto& problem : root.error().list()) {
      auto notes = problem.notes;
      if (std::filesystem::path(source.name).extension() == ".py")
        notes.push_back(
            "a Python registry is code, not data: run it, and import the TOML that its job prints (--job.print_config), or one written by "
            "hand");
      problems.add(problem.where, problem.message, std::move(notes));
    }
    return tl::unexpected(problems);
  }
  ScenarioDraft draft;
  draft.origin = "the torchtitan job " + std::filesystem::path(source.name).filename().string();
  TorchtitanReader(*root, draft, options).read();
  return std::move(draft).finish(options);
}

}  // namespace shardsim
