// SPDX-License-Identifier: Apache-2.0
// The configuration that OLMo-core's train scripts save with a run (config.json), or the same in YAML. Batch sizes are in tokens there.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/importers/foreign_map.hpp"

namespace shardsim {
namespace {

class OlmoCoreReader {
 public:
  OlmoCoreReader(const ConfigNode& tree, ScenarioDraft& draft, const ImportOptions& options)
      : draft_(draft),
        options_(options),
        root_(&tree, "", draft),
        train_(root_.section("train_module")),
        dp_(train_.section("dp_config")) {}

  void read() {
    model();
    batch();
    training();
    optimizer();
    strategy();
    train_.refuse("tp_config", "tensor parallelism is not modelled beside data parallelism");
    train_.refuse("cp_config", "context parallelism is not modelled beside data parallelism");
    train_.refuse("pp_config", "pipeline parallelism is not modelled beside data parallelism");
    train_.not_modelled("float8_config", "float8 products: bf16 ones are assumed instead");
    train_.not_modelled("ep_config", "expert parallelism: every rank is assumed to hold all experts");
    train_.without_effect({"scheduler", "z_loss_multiplier", "label_ignore_index", "state_dict_save_opts", "state_dict_load_opts",
                           "load_key_mapping", "_CLASS_", "autocast_precision", "compile_optimizer"});
    train_.finish();
    root_.without_effect({"run_name", "dataset", "trainer", "launch", "init_seed", "load_path", "load_trainer_state", "_CLASS_", "backend",
                          "seed", "callbacks", "tokenizer", "artifact_dir", "dry_run"});
    root_.finish();
  }

 private:
  void model() {
    ForeignMap block = root_.section("model");
    if (!options_.model.empty() || !block) {
      const ModelFacts facts = describe_model(draft_, options_);
      default_sequence_ = facts.sequence_length;
      return block.all_without_effect("--model was given");
    }
    const auto size = [](ForeignMap& map, const char* key, std::int64_t fallback) { return map.whole(key, 1, 1 << 24).value_or(fallback); };
    const std::int64_t hidden = size(block, "d_model", 4096), layers = size(block, "n_layers", 32),
                       vocabulary = size(block, "vocab_size", 100352);
    ForeignMap layer = block.section("block");
    ForeignMap attention = layer.section(Keys{"attention", "sequence_mixer"}), feed_forward = layer.section("feed_forward");
    const std::int64_t heads = size(attention, "n_heads", 32), kv_heads = size(attention, "n_kv_heads", heads),
                       width = size(feed_forward, "hidden_size", 4 * hidden);
    const std::int64_t head_dim = size(attention, "head_dim", hidden / heads);
    const bool bias = attention.on("bias");
    ForeignMap qk_norm = attention.section("qk_norm");
    const bool reordered = layer.word("name").value_or("default").find("reordered_norm") != std::string::npos;
    layer.refuse("feed_forward_moe", "mixtures of experts: give the model's config.json with --model");
    qk_norm.all_without_effect("");
    attention.without_effect(
        {"name", "rope", "use_flash", "backend", "dtype", "dropout", "clip_qkv", "use_head_qk_norm", "_CLASS_", "gate", "sliding_window"});
    feed_forward.without_effect({"name", "bias", "dtype", "_CLASS_", "activation"});
    layer.without_effect({"layer_norm", "dropout", "_CLASS_", "block_type"});
    for (ForeignMap* map : {&attention, &feed_forward, &layer}) map->finish();
    block.without_effect({"lm_head", "name", "dtype", "init_method", "init_seed", "init_std", "freeze_params", "block_overrides", "_CLASS_",
                          "embedding_init_std", "embed_scale", "fused_ops", "tie_word_embeddings"});
    block.finish();
    const std::string type = reordered ? "olmo2" : qk_norm ? "qwen3" : "llama";
    draft_.model("hf_config",
                 fmt::format("{{model_type: {}, hidden_size: {}, num_hidden_layers: {}, num_attention_heads: {}, num_key_value_heads: {}, "
                             "head_dim: {}, intermediate_size: {}, vocab_size: {}, "
                             "attention_bias: {}, tie_word_embeddings: false}}",
                             type, hidden, layers, heads, kv_heads, head_dim, width, vocabulary, bias),
                 "model: d_model, n_layers, block ...");
  }

  void batch() {
    ForeignMap dataset(root_.node()->find("dataset"), "dataset", draft_);
    ForeignMap loader = root_.section("data_loader");
    const auto sequence = train_.whole("max_sequence_length", 1);
    const auto other = dataset.whole("sequence_length", 1);
    const std::int64_t length = sequence ? *sequence : other.value_or(default_sequence_);
    const auto micro_tokens = train_.whole("rank_microbatch_size", 1), global_tokens = loader.whole("global_batch_size", 1);
    const std::int64_t micro = std::max<std::int64_t>(micro_tokens.value_or(length) / length, 1);
    loader.without_effect({"seed", "num_threads", "num_workers", "prefetch_factor", "target_device_type", "work_dir", "_CLASS_",
                           "ignore_fingerprint_mismatch"});
    loader.finish();
    const std::int64_t replicas = std::max<std::int64_t>(dp_.whole("num_replicas", 1).value_or(1), 1),
                       shards = dp_.whole("shard_degree", 1).value_or(0);
    replicas_ = replicas;
    const std::int64_t world = shards > 0 && options_.nodes == 0 ? described(replicas * shards) : describe_cluster(draft_, options_, 0, 0);
    const std::int64_t accumulation = global_tokens ? std::max<std::int64_t>(*global_tokens / length / micro / world, 1) : 1;
    if (!sequence && !other) draft_.note(fmt::format("sequences of {} tokens (not in the file)", length));
    draft_.training("sequence_length", std::to_string(length), sequence ? "train_module.max_sequence_length" : "dataset.sequence_length");
    draft_.training("micro_batch_size", std::to_string(micro), "train_module.rank_microbatch_size, in tokens");
    draft_.training("gradient_accumulation_steps", std::to_string(accumulation), "from data_loader.global_batch_size, in tokens");
  }

  std::int64_t described(std::int64_t world) {
    std::int64_t per_node = 8;
    while (world % per_node != 0) --per_node;
    return describe_cluster(draft_, options_, world / per_node, per_node, "dp_config: replicas x shards");
  }

  void training() {
    draft_.training("stack", "olmo-core", "what the software costs");
    ForeignMap ac = train_.section("ac_config");
    const auto mode = ac.choice("mode", {"full", "selected_blocks", "selected_modules", "selected_ops", "budget"});
    const auto interval = ac.whole("block_interval", 1);
    if (mode == "full") draft_.training("activation_checkpointing", "full", "train_module.ac_config.mode");
    if (mode == "selected_blocks")
      draft_.training("activation_checkpointing", fmt::format("{{every: {}}}", interval.value_or(2)),
                      "train_module.ac_config.block_interval");
    if (mode == "selected_ops") draft_.training("activation_checkpointing", "selective_ops", "train_module.ac_config.mode");
    if (mode == "selected_modules") {
      draft_.training("activation_checkpointing", "selective_ops", "train_module.ac_config.modules");
      draft_.note("checkpointing of selected modules is taken as selective_ops");
    }
    if (mode == "budget")
      draft_.ignore("train_module.ac_config.mode", ac.take("mode")->where, "a budget of activation memory: no checkpointing is assumed",
                    Effect::changes);
    ac.without_effect({"modules", "activation_memory_budget", "_CLASS_"});
    ac.finish();
    if (train_.on("compile_model")) draft_.training("compile", "true", "train_module.compile_model");
  }

  void optimizer() {
    ForeignMap block = train_.section("optim");
    std::string type = block.word(Keys{"_CLASS_", "name"}).value_or("AdamW");
    type = type.substr(type.find_last_of('.') + 1);
    if (type.ends_with("Config")) type.resize(type.size() - 6);
    const OptimizerName name = optimizer_name(type);
    const auto clip = train_.real("max_grad_norm", 0);
    const bool fused = block.on("fused");
    block.without_effect({"lr", "betas", "eps", "weight_decay", "group_overrides", "compile", "foreach", "fixed_fields",
                          "rolling_interval_length", "sigma_factor", "dtype"});
    block.finish();
    if (name.name.empty()) return draft_.problem(train_.node()->where, fmt::format("unknown optimizer {}", in_quotes(type)));
    std::string fields = "name: " + name.name;
    if (name.name == "adamw") fields += fused ? ", implementation: fused" : ", implementation: foreach";
    if (clip) fields += fmt::format(", clip_grad_norm: {}", *clip);
    draft_.training("optimizer", "{" + fields + "}", name.comment.empty() ? "train_module.optim, max_grad_norm" : name.comment);
  }

  void strategy() {
    const auto kind = dp_.choice("name", {"fsdp", "hsdp", "ddp"});
    const std::string parameters = dp_.dtype("param_dtype").value_or("fp32"), reduce = dp_.dtype("reduce_dtype").value_or("fp32");
    dp_.without_effect({"wrapping_strategy", "prefetch_factor", "_CLASS_", "only_allreduce_last_microbatch"});
    dp_.finish();
    if (!kind || *kind == "ddp") {
      draft_.strategy("ddp", "train_module.dp_config.name");
      return draft_.training(
          "precision",
          parameters == "fp32" ? "fp32"
                               : fmt::format("{{parameters: fp32, compute: {}, gradients: fp32, reduce: fp32, master: none}}", parameters),
          "dp_config.param_dtype");
    }
    draft_.strategy("fsdp2", "train_module.dp_config.name");
    if (replicas_ > 1) draft_.option("replicate", std::to_string(replicas_), "dp_config.num_replicas");
    if (*kind == "hsdp" && replicas_ == 1 && options_.nodes > 1)
      draft_.option("replicate", std::to_string(options_.nodes), "one replica a node");
    draft_.training("precision", parameters == "fp32" ? "fp32" : precision_map(parameters, parameters, reduce, "fp32"),
                    "dp_config.param_dtype, reduce_dtype");
  }

  ScenarioDraft& draft_;
  const ImportOptions& options_;
  ForeignMap root_, train_, dp_;
  std::int64_t default_sequence_ = 2048, replicas_ = 1;
};

}  // namespace

Result<Imported> import_olmo_core(const Source& source, const ImportOptions& options) {
  const auto root = read_yaml(source);  // JSON is YAML, too
  if (!root) return tl::unexpected(root.error());
  ScenarioDraft draft;
  draft.origin = "the OLMo-core configuration " + std::filesystem::path(source.name).filename().string();
  if (root->find("train_module") == nullptr) {
    draft.problem(
        root->where,
        "not an OLMo-core configuration: it has no 'train_module' (a train script is code: import the config.json that its run saves)");
    return std::move(draft).finish(options);
  }
  OlmoCoreReader(*root, draft, options).read();
  return std::move(draft).finish(options);
}

}  // namespace shardsim
