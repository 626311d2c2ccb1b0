// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/importers/import_draft.hpp"

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

std::string text_or(const ConfigNode* node, std::string fallback) {
  return node != nullptr && node->kind == ConfigNode::Kind::scalar ? node->text : std::move(fallback);
}

/// The dtype behind Composer's `precision`.
std::string composer_dtype(std::string_view precision) {
  const std::string word = lower(precision);
  if (word.ends_with("bf16")) return "bf16";
  if (word.ends_with("fp16")) return "fp16";
  return word.ends_with("fp8") ? "bf16" : "fp32";
}

std::string dtype_name(const ConfigNode* node, std::string fallback) {
  return node == nullptr ? fallback : composer_dtype(lower(node->text) == "bfloat16" ? "bf16" : node->text);
}

class LlmFoundryReader {
 public:
  LlmFoundryReader(const ConfigNode& tree, ScenarioDraft& draft, const ImportOptions& options)
      : tree_(tree), draft_(draft), options_(options), root_(&tree, "", draft) {}

  Problems read() {
    model();
    batch();
    training();
    fsdp();
    for (const std::string_view key :
         {"variables", "run_name", "tokenizer", "train_loader", "eval_loader", "scheduler", "callbacks", "loggers", "seed", "max_duration",
          "progress_bar", "log_to_console", "console_log_interval", "dist_timeout", "icl_seq_len"})
      root_.ignore(key, "no effect on the traffic, memory or time of one step");
    root_.finish();
    return std::move(problems_);
  }

 private:
  void model() {
    ForeignMap block(root_.take("model"), "model", draft_);
    sequence_ = whole_number(root_.take("max_seq_len")).value_or(2048);
    if (!options_.model.empty()) {
      const auto facts = describe_model(draft_, options_);
      if (!facts) problems_.append(facts.error());
      return block.finish("--model was given");
    }
    const std::string name = text_or(block.take("name"), "");
    if (name == "mpt_causal_lm") {
      mpt(block);
    } else if (const ConfigNode* pretrained = block.take("pretrained_model_name_or_path")) {
      hugging_face(*pretrained);
    } else {
      problems_.add(tree_.find("model")->where, fmt::format("no way is known to build the model '{}'", name), {"give one with --model"});
    }
    block.finish();
  }

  /// The family's defaults are those of LLM Foundry's MPTConfig.
  void mpt(ForeignMap& block) {
    const auto number = [&](std::string_view key, std::int64_t fallback) { return whole_number(block.take(key)).value_or(fallback); };
    const std::int64_t width = number("d_model", 2048), heads = number("n_heads", 16), layers = number("n_layers", 24),
                       ratio = number("expansion_ratio", 4);
    const std::int64_t vocabulary = number("vocab_size", 50368), positions = number("max_seq_len", 2048);
    const bool no_bias = truthy(block.take("no_bias"));
    const ConfigNode* attention = block.take("attn_config");
    const bool alibi = attention != nullptr && truthy(attention->find("alibi"));
    draft_.model(
        "hf_config",
        fmt::format(
            "{{model_type: mpt, d_model: {}, n_heads: {}, n_layers: {}, expansion_ratio: {}, vocab_size: {}, max_seq_len: {}, no_bias: {}, "
            "learned_pos_emb: {}, attn_config: {{alibi: {}}}}}",
            width, heads, layers, ratio, vocabulary, positions, no_bias, !alibi, alibi));
    const std::string kernel = attention == nullptr ? "flash" : text_or(attention->find("attn_impl"), "flash");
    if (kernel == "torch") attention_ = "plain";
  }

  void hugging_face(const ConfigNode& pretrained) {
    if (lower(pretrained.text).find("dbrx") != std::string::npos) {
      // DBRX (132B): 16 experts of which 4 run, d_model 6144, 40 layers, 48 heads on 8 key-value heads.
      draft_.note("DBRX has Mixtral's layer with its own sizes (norms and the fused projection aside, the same matrices)");
      return draft_.model(
          "hf_config",
          "{model_type: mixtral, hidden_size: 6144, num_hidden_layers: 40, num_attention_heads: 48, num_key_value_heads: 8, "
          "intermediate_size: 10752, "
          "num_local_experts: 16, num_experts_per_tok: 4, vocab_size: 100352, max_position_embeddings: 32768, tie_word_embeddings: false}");
    }
    ImportOptions named = options_;
    named.model = pretrained.text;
    if (!describe_model(draft_, named))
      problems_.add(pretrained.where, fmt::format("no preset for '{}'", pretrained.text), {"give the model's config.json with --model"});
  }

  void batch() {
    const std::int64_t global = whole_number(root_.take("global_train_batch_size")).value_or(0);
    const ConfigNode* micro_node = root_.take("device_train_microbatch_size");
    const std::int64_t micro = std::max<std::int64_t>(whole_number(micro_node).value_or(1), 1);
    if (is_auto(micro_node)) draft_.note("the micro-batch is 1 (auto takes the largest that fits: `plan` finds it)");
    describe_cluster(draft_, options_, 0, 0);
    const std::int64_t world = (options_.nodes > 0 ? options_.nodes : 1) * (options_.gpus_per_node > 0 ? options_.gpus_per_node : 8);
    const std::int64_t accumulation = std::max<std::int64_t>(global / (micro * world), 1);
    if (global > 0 && global != accumulation * micro * world)
      draft_.note(fmt::format("{} ranks with micro-batch {} do not give the global batch {} exactly", world, micro, global));
    draft_.training("sequence_length", std::to_string(sequence_));
    draft_.training("micro_batch_size", std::to_string(micro));
    draft_.training("gradient_accumulation_steps", std::to_string(accumulation), "from global_train_batch_size");
    root_.ignore_all({"device_eval_batch_size", "eval_interval", "eval_first", "eval_subset_num_batches"}, "evaluation is not modelled");
  }

  void training() {
    draft_.training("attention", attention_);
    const ConfigNode* block = root_.take("optimizer");
    const ConfigNode* type = block == nullptr ? nullptr : block->find("name");
    const OptimizerName name = type == nullptr ? OptimizerName{"adamw", "not in the file"} : optimizer_name(type->text);
    if (name.name.empty()) problems_.add(type->where, fmt::format("unknown optimizer '{}'", type->text));
    const ConfigNode* algorithms = root_.take("algorithms");
    const ConfigNode* clipping = algorithms == nullptr ? nullptr : algorithms->find("gradient_clipping");
    const auto threshold = real_number(clipping == nullptr ? nullptr : clipping->find("clipping_threshold"));
    draft_.training("optimizer", threshold ? fmt::format("{{name: {}, clip_grad_norm: {}}}", name.name, *threshold) : name.name,
                    name.comment);
  }

  void fsdp() {
    const ConfigNode* node = root_.take("fsdp_config");
    const ConfigNode* nested = root_.take("parallelism_config");
    if (node == nullptr && nested != nullptr) node = nested->find("fsdp");
    const std::string precision = text_or(root_.take("precision"), "amp_bf16");
    if (node == nullptr) {
      draft_.strategy("ddp", "no fsdp_config in the file");
      const std::string dtype = composer_dtype(precision);
      return draft_.training(
          "precision",
          dtype == "fp32" ? "fp32" : fmt::format("{{parameters: fp32, compute: {}, gradients: fp32, reduce: fp32, master: none}}", dtype));
    }
    ForeignMap block(node, "fsdp_config", draft_);
    draft_.strategy("fsdp1");
    fsdp_precision(block.take("mixed_precision"), composer_dtype(precision));
    if (truthy(block.take("activation_checkpointing"))) draft_.training("activation_checkpointing", "full");
    if (const ConfigNode* sharding = block.take("sharding_strategy"))
      draft_.option("sharding_strategy", *sharding, "fsdp_config.sharding_strategy");
    block.ignore_all({"state_dict_type", "activation_checkpointing_reentrant", "sync_module_states", "verbose", "load_monolith_rank0_only"},
                     "no effect on the traffic, memory or time of one step");
    block.ignore("activation_cpu_offload", "offload of activations is not modelled");
    block.rest_as_options();
  }

  /// Composer, distributed/mosaic_parallelism.py, get_mixed_precision: FULL, DEFAULT, PURE or a map of dtypes.
  void fsdp_precision(const ConfigNode* node, const std::string& dtype) {
    if (node != nullptr && node->kind == ConfigNode::Kind::map) {
      const std::string parameters = dtype_name(node->find("param_dtype"), "fp32");
      return draft_.training("precision",
                             precision_map(parameters, parameters, dtype_name(node->find("reduce_dtype"), parameters), "fp32"));
    }
    const std::string word = lower(text_or(node, "DEFAULT"));
    if (dtype == "fp32") return draft_.training("precision", "fp32");
    if (word == "full")
      return draft_.training("precision",
                             fmt::format("{{parameters: fp32, compute: {}, gradients: fp32, reduce: fp32, master: fp32}}", dtype));
    draft_.training("precision", precision_map(dtype, dtype, word == "pure" ? dtype : "fp32", "fp32"), "mixed_precision: " + word);
  }

  const ConfigNode& tree_;
  ScenarioDraft& draft_;
  const ImportOptions& options_;
  ForeignMap root_;
  std::int64_t sequence_ = 2048;
  std::string attention_ = "flash";
  Problems problems_;
};

}  // namespace

Result<Imported> import_llm_foundry(const Source& source, const ImportOptions& options) {
  auto root = read_yaml(source);
  if (!root) return tl::unexpected(root.error());
  Problems problems;
  const ConfigNode* model = root->find("model");
  if (model == nullptr || model->kind != ConfigNode::Kind::map) {
    problems.add(root->where, "not an LLM Foundry training configuration: it has no map 'model'");
    return tl::unexpected(problems);
  }
  const ConfigNode plain = *root;
  interpolate(*root, plain);
  ScenarioDraft draft;
  draft.origin = "the LLM Foundry configuration " + std::filesystem::path(source.name).filename().string();
  problems = LlmFoundryReader(*root, draft, options).read();
  if (!problems.empty()) return tl::unexpected(std::move(problems));
  return std::move(draft).finish();
}

}  // namespace shardsim
