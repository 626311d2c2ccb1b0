// SPDX-License-Identifier: Apache-2.0
// torchtitan's TOML job files (before its Python registries), and those of KempnerForge, which name the same things a little differently.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/importers/import_draft.hpp"
#include "sim/config/toml.hpp"

namespace shardsim {
namespace {

std::string torchtitan_dtype(const ConfigNode* node, std::string_view fallback) {
  const std::string word = node == nullptr ? std::string(fallback) : lower(node->text);
  return word == "bfloat16" || word == "bf16" ? "bf16" : word == "float16" || word == "fp16" ? "fp16" : "fp32";
}

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
        training_(first({"training", "train"}), "training", draft),
        parallelism_(first({"parallelism", "distributed"}), "parallelism", draft) {}

  Problems read() {
    model();
    batch();
    training();
    optimizer();
    strategy();
    for (const std::string_view key :
         {"job", "profiling", "metrics", "lr_scheduler", "scheduler", "checkpoint", "comm", "data", "validation", "debug"})
      root_.ignore(key, "no effect on the traffic, memory or time of one step");
    training_.ignore_all(
        {"max_steps", "steps", "seed", "dataset", "dataset_path", "warmup_steps", "gc_freq", "deterministic", "data_parallel_degree"},
        "no effect on the traffic, memory or time of one step");
    parallelism_.ignore_all({"nccl_timeout_sec"}, "no effect on the traffic, memory or time of one step");
    training_.finish();
    parallelism_.finish("only data parallelism is modelled: the ranks of other dimensions count as data-parallel ranks");
    root_.finish();
    return std::move(problems_);
  }

 private:
  const ConfigNode* first(std::initializer_list<std::string_view> keys) { return root_.take_any(keys); }

  void model() {
    ForeignMap block(root_.take("model"), "model", draft_);
    positions_ = whole_number(block.take("max_seq_len")).value_or(0);
    if (!options_.model.empty()) {
      describe(options_);
      return block.finish("--model was given");
    }
    const ConfigNode* name = block.take("name");
    const ConfigNode* flavor = block.take("flavor");
    if (block.take("dim") != nullptr) {
      llama(block);
    } else if (name != nullptr) {
      named_model(*name, flavor);
    } else {
      describe(options_);
    }
    block.finish();
  }

  void describe(const ImportOptions& options) {
    const auto facts = describe_model(draft_, options);
    if (!facts) return problems_.append(facts.error());
    default_sequence_ = facts->sequence_length;
  }

  void named_model(const ConfigNode& name, const ConfigNode* flavor) {
    ImportOptions named = options_;
    named.model = name.text + (flavor == nullptr ? "" : "-" + flavor->text);
    if (named.model == "llama3-405B") named.model = "llama-3.1-405b";
    const auto facts = describe_model(draft_, named);
    if (!facts) problems_.add(name.where, fmt::format("no preset for the model '{}'", named.model), {"give one with --model"});
  }

  /// Llama by the names of its reference code.
  void llama(ForeignMap& block) {
    const auto number = [&](std::string_view key, std::int64_t fallback) { return whole_number(block.take(key)).value_or(fallback); };
    const std::int64_t d = number("dim", 4096), layers = number("n_layers", 32), heads = number("n_heads", 32),
                       kv_heads = number("n_kv_heads", heads);
    const std::int64_t vocabulary = number("vocab_size", 32000), multiple = std::max<std::int64_t>(number("multiple_of", 256), 1);
    const double multiplier = real_number(block.take("ffn_dim_multiplier")).value_or(1.0);
    const std::int64_t width = number("ffn_hidden_dim", feed_forward_width(d, multiplier, multiple));
    const bool tied = truthy(block.take("tie_embeddings"));
    block.ignore_all({"norm_type", "activation", "rope_theta"}, "Llama's layer is taken");
    draft_.model("hf_config", fmt::format("{{model_type: llama, hidden_size: {}, num_hidden_layers: {}, num_attention_heads: {}, "
                                          "num_key_value_heads: {}, intermediate_size: {}, "
                                          "vocab_size: {}, max_position_embeddings: {}, tie_word_embeddings: {}}}",
                                          d, layers, heads, kv_heads, width, vocabulary, positions_ > 0 ? positions_ : 8192, tied));
  }

  void batch() {
    const auto positive = [](const ConfigNode* node) { return std::max<std::int64_t>(whole_number(node).value_or(0), 0); };
    const ConfigNode* micro_node = training_.take_any({"local_batch_size", "batch_size"});
    const std::int64_t micro = micro_node == nullptr ? 1 : std::max<std::int64_t>(positive(micro_node), 1);
    const std::int64_t global = positive(training_.take("global_batch_size"));
    std::int64_t accumulation =
        std::max<std::int64_t>(positive(training_.take_any({"gradient_accumulation_steps", "grad_accum_steps"})), 1);
    replicas_ = std::max<std::int64_t>(positive(parallelism_.take_any({"data_parallel_replicate_degree", "dp_replicate"})), 1);
    const std::int64_t shards = positive(parallelism_.take_any({"data_parallel_shard_degree", "dp_shard"}));
    cluster(shards == 0 ? 0 : shards * replicas_);
    if (global > 0) accumulation = std::max<std::int64_t>(global / (micro * world_), 1);
    const ConfigNode* length = training_.take("seq_len");
    draft_.training("sequence_length",
                    length != nullptr ? std::to_string(whole_number(length).value_or(2048))
                                      : std::to_string(positions_ > 0 ? positions_ : default_sequence_),
                    length == nullptr ? "not in the file" : "");
    draft_.training("micro_batch_size", std::to_string(micro), micro_node == nullptr ? "not in the file" : "");
    draft_.training("gradient_accumulation_steps", std::to_string(accumulation), global > 0 ? "from global_batch_size" : "");
  }

  void cluster(std::int64_t world) {
    if (world == 0 || options_.nodes > 0) {
      const std::int64_t nodes = options_.nodes > 0 ? options_.nodes : std::max<std::int64_t>(replicas_ / 8, 1);
      world_ = nodes * (options_.gpus_per_node > 0 ? options_.gpus_per_node : 8);
      return describe_cluster(draft_, options_, nodes > 1 ? nodes : 0, 0);
    }
    std::int64_t per_node = 8;
    while (world % per_node != 0) --per_node;
    world_ = world;
    describe_cluster(draft_, options_, world / per_node, per_node, "replicas x shards of the file");
  }

  void training() {
    const std::string parameters = torchtitan_dtype(training_.take("mixed_precision_param"), "bf16");
    const std::string reduce = torchtitan_dtype(training_.take("mixed_precision_reduce"), "fp32");
    draft_.training("precision", parameters == "fp32" ? "fp32" : precision_map(parameters, parameters, reduce, "fp32"));
    const ConfigNode* compile_block = root_.take("compile");
    const ConfigNode* compile = training_.take_any({"compile", "compile_model"});
    if (truthy(compile) || (compile_block != nullptr && truthy(compile_block->find("enable")))) draft_.training("compile", "true");
    if (truthy(training_.take("enable_cpu_offload"))) draft_.training("offload", "{parameters: cpu, optimizer: cpu}");
    checkpointing();
  }

  void checkpointing() {
    const ConfigNode* block = root_.take("activation_checkpoint");
    const ConfigNode* mode = block == nullptr ? training_.take("activation_checkpointing") : block->find("mode");
    const std::string word = mode == nullptr ? "none" : lower(mode->text);
    const ConfigNode* option = block == nullptr ? nullptr : block->find("selective_ac_option");
    if (word == "full") {
      draft_.training("activation_checkpointing", "full");
    } else if (word == "selective" && option != nullptr && option->text == "op") {
      draft_.training("activation_checkpointing", "selective_ops");
    } else if (word == "selective" && option != nullptr && whole_number(option).value_or(0) > 0) {
      draft_.training("activation_checkpointing", fmt::format("{{every: {}}}", *whole_number(option)));
    } else if (word == "selective") {
      draft_.training("activation_checkpointing", "selective_ops", "which selection is not in the file");
    } else if (word != "none") {
      draft_.note(fmt::format("activation checkpointing '{}' is not modelled: none is taken", word));
    }
  }

  void optimizer() {
    ForeignMap block(root_.take("optimizer"), "optimizer", draft_);
    const ConfigNode* type = block.take("name");
    const OptimizerName name = type == nullptr ? OptimizerName{"adamw", "not in the file"} : optimizer_name(type->text);
    if (name.name.empty()) problems_.add(type->where, fmt::format("unknown optimizer '{}'", type->text));
    const ConfigNode* implementation = block.take("implementation");
    std::string how = implementation == nullptr ? "fused" : lower(implementation->text);
    if (const ConfigNode* fused = block.take("fused"); fused != nullptr && !truthy(fused)) how = "foreach";
    if (how == "for-loop") how = "for_loop";
    const ConfigNode* clip = training_.take_any({"max_norm", "grad_clip_norm"});
    draft_.training("optimizer",
                    fmt::format("{{name: {}, implementation: {}, clip_grad_norm: {}}}", name.name, how, real_number(clip).value_or(1.0)),
                    name.comment);
    block.finish("no effect on the traffic, memory or time of one step");
  }

  void strategy() {
    draft_.strategy("fsdp2");
    draft_.option("wrap", "torchtitan", "embedding, blocks and head are units of their own");
    if (replicas_ > 1) draft_.option("replicate", std::to_string(replicas_), "data_parallel_replicate_degree");
    const ConfigNode* reshard = parallelism_.take_any({"fsdp_reshard_after_forward", "reshard_after_forward"});
    if (reshard != nullptr && reshard->text != "default")
      draft_.option("reshard_after_forward", reshard->text == "never" || reshard->text == "false" ? "false" : "true", "");
    if (reshard != nullptr && reshard->text == "always") draft_.option("reshard_root_after_forward", "true", "norm and head too");
  }

  ScenarioDraft& draft_;
  const ImportOptions& options_;
  ForeignMap root_, training_, parallelism_;
  std::int64_t positions_ = 0, default_sequence_ = 2048, replicas_ = 1, world_ = 8;
  Problems problems_;
};

}  // namespace

Result<Imported> import_torchtitan(const Source& source, const ImportOptions& options) {
  auto root = read_toml(source);
  if (!root) {
    Problems problems;
    for (const auto& problem : root.error().list()) {
      auto notes = problem.notes;
      if (std::filesystem::path(source.name).extension() == ".py")
        notes.push_back("a Python registry is code, not data: import the TOML of the job instead");
      problems.add(problem.where, problem.message, std::move(notes));
    }
    return tl::unexpected(problems);
  }
  ScenarioDraft draft;
  draft.origin = "the torchtitan job " + std::filesystem::path(source.name).filename().string();
  Problems problems = TorchtitanReader(*root, draft, options).read();
  if (!problems.empty()) return tl::unexpected(std::move(problems));
  return std::move(draft).finish();
}

}  // namespace shardsim
