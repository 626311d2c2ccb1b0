// SPDX-License-Identifier: Apache-2.0
// torchtune's recipe YAML: full and LoRA fine-tuning on FSDP2 or on one GPU. Components are named by their Python path, which says the
// model.
#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "scenarios/importers/foreign_map.hpp"

namespace shardsim {
namespace {

/// The last part of "torchtune.models.llama3_1.lora_llama3_1_8b".
std::string component(const ConfigNode* node) {
  return node == nullptr ? std::string() : node->text.substr(node->text.find_last_of('.') + 1);
}

/// "lora_llama3_1_8b" to the preset llama-3.1-8b.
std::string model_of_component(std::string name) {
  for (const std::string_view prefix : {"lora_", "qlora_", "dora_", "qdora_"})
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> spelt{{{"llama3_1_", "llama-3.1-"},
                                                                                {"llama3_2_", "llama-3.2-"},
                                                                                {"llama3_3_", "llama-3.1-"},
                                                                                {"llama3_", "llama-3-"},
                                                                                {"llama2_", "llama-2-"},
                                                                                {"qwen2_5_", "qwen2.5-"}}};
  for (const auto& [from, to] : spelt)
    if (name.starts_with(from)) name = std::string(to) + name.substr(from.size());
  for (char& c : name)
    if (c == '_') c = '-';
  for (const std::string_view suffix : {"-base", "-instruct"})
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name;
}

class TorchtuneReader {
 public:
  TorchtuneReader(const ConfigNode& tree, ScenarioDraft& draft, const ImportOptions& options)
      : draft_(draft), options_(options), root_(&tree, "", draft) {}

  void read() {
    model();
    batch();
    training();
    strategy();
    root_.without_effect({"tokenizer",
                          "checkpointer",
                          "dataset",
                          "dataset_val",
                          "seed",
                          "shuffle",
                          "epochs",
                          "max_steps_per_epoch",
                          "lr_scheduler",
                          "output_dir",
                          "metric_logger",
                          "log_every_n_steps",
                          "log_peak_memory_stats",
                          "log_level",
                          "device",
                          "resume_from_checkpoint",
                          "save_adapter_weights_only",
                          "profiler",
                          "save_last_epoch_only",
                          "enable_async_checkpointing",
                          "run_val_every_n_steps",
                          "batch_size_val",
                          "cudnn_deterministic_mode",
                          "collate_fn",
                          "keep_last_n_checkpoints",
                          "checkpoint_dir",
                          "packed",
                          "save_every_n_steps",
                          "parallelize_plan"});
    root_.refuse("tensor_parallel_dim", "tensor parallelism is not modelled beside data parallelism", {"1"});
    root_.refuse("context_parallel_dim", "context parallelism is not modelled beside data parallelism", {"1"});
    root_.not_modelled("tensor_parallel_plan", "tensor parallelism");
    root_.not_modelled("enable_activation_offloading", "activations move to the host: they are assumed to stay on the GPU");
    root_.not_modelled("enable_fp8_training", "fp8 products are timed as bf16");
    root_.not_modelled("optimizer_in_bwd",
                       "the optimizer steps within backward, and gradients are freed at once: a step after it is assumed");
    root_.not_modelled("fsdp_device_mesh", "a mesh of the file's own");
    root_.not_modelled("quantizer", "quantisation-aware training: none is assumed");
    root_.finish();
  }

 private:
  void model() {
    ForeignMap block = root_.section("model");
    const ConfigNode* node = block.take("_component_");
    const std::string name = component(node);
    if (node != nullptr && options_.model.empty()) {
      ConfigNode named = *node;
      named.text = model_of_component(name);
      facts_ = describe_model(draft_, options_, &named, "model._component_");
    } else {
      facts_ = describe_model(draft_, options_);
    }
    const auto rank = block.whole("lora_rank", 1);
    const auto attention = block.words("lora_attn_modules");
    const bool mlp = block.on("apply_lora_to_mlp"), output = block.on("apply_lora_to_output"), quantised = block.on("quantize_base");
    if (rank || name.find("lora_") != std::string::npos) {
      std::string list;
      for (const auto& target : attention) list += (list.empty() ? "" : ", ") + yaml_scalar(target == "output_proj" ? "o_proj" : target);
      if (mlp) list += std::string(list.empty() ? "" : ", ") + "gate_proj, up_proj, down_proj";
      if (output) draft_.note("adapters on the output layer are left out");
      if (list.empty()) list = "q_proj, v_proj";
      draft_.model("trainable", fmt::format("{{lora: {{rank: {}, targets: [{}]}}}}", rank.value_or(8), list),
                   "model.lora_rank, lora_attn_modules");
      if (quantised || name.starts_with("qlora_") || name.starts_with("qdora_")) draft_.model("quantization", "nf4", "QLoRA");
    }
    block.without_effect({"lora_alpha", "lora_dropout", "use_dora", "max_seq_len", "attn_dropout"});
    block.finish();
  }

  void batch() {
    std::optional<std::int64_t> sequence;
    for (const char* key : {"tokenizer", "dataset"}) {
      ForeignMap block(root_.node()->find(key), key, draft_);
      if (block && !sequence) sequence = block.whole("max_seq_len", 1);
    }
    const auto micro = root_.whole("batch_size", 1), accumulation = root_.whole("gradient_accumulation_steps", 1);
    if (!sequence) draft_.note(fmt::format("sequences of {} tokens (tokenizer.max_seq_len is not set)", facts_.sequence_length));
    draft_.training("sequence_length", std::to_string(sequence.value_or(facts_.sequence_length)),
                    sequence ? "tokenizer.max_seq_len" : "not in the file");
    draft_.training("micro_batch_size", std::to_string(micro.value_or(1)), "batch_size");
    draft_.training("gradient_accumulation_steps", std::to_string(accumulation.value_or(1)), "gradient_accumulation_steps");
  }

  void training() {
    const std::string dtype = root_.dtype("dtype").value_or("bf16");
    draft_.training("precision", dtype == "fp32" ? "fp32" : "pure-bf16", "dtype");
    if (root_.on("enable_activation_checkpointing")) draft_.training("activation_checkpointing", "full", "enable_activation_checkpointing");
    if (const ConfigNode* mode = root_.take("ac_mode"); mode != nullptr && lower(mode->text) == "selective") {
      const ConfigNode* option = root_.take("ac_option");
      const auto every = whole_number(option);
      draft_.training("activation_checkpointing", every && *every > 0 ? fmt::format("{{every: {}}}", *every) : "selective_ops",
                      "ac_mode, ac_option");
    }
    root_.without_effect({"ac_mode", "ac_option"});
    const ConfigNode* compile = root_.take("compile");
    if (compile != nullptr && compile->kind == ConfigNode::Kind::map ? ForeignMap(compile, "compile", draft_).on("model")
                                                                     : root_.on("compile"))
      draft_.training("compile", "true", "compile");
    ForeignMap loss = root_.section("loss");
    const std::string which = component(loss.take("_component_"));
    const auto chunks = loss.whole("num_output_chunks", 1);
    loss.without_effect({"ignore_index"});
    loss.finish();
    if (which == "CEWithChunkedOutputLoss" || which == "LinearCrossEntropyLoss")
      draft_.training("loss", fmt::format("{{chunked: {}}}", chunks.value_or(8)), "loss._component_");
    ForeignMap block = root_.section("optimizer");
    const ConfigNode* type = block.take("_component_");
    const OptimizerName name = type == nullptr ? OptimizerName{"adamw", "not in the file"} : optimizer_name(type->text);
    const auto clip = root_.real("clip_grad_norm", 0);
    const bool fused = block.on("fused");
    block.without_effect({"lr", "weight_decay", "betas", "eps", "momentum"});
    block.finish();
    if (name.name.empty()) return draft_.problem(type->where, fmt::format("unknown optimizer {}", in_quotes(type->text)));
    std::string fields = "name: " + name.name;
    if (name.name == "adamw" || name.name == "adam") fields += fused ? ", implementation: fused" : ", implementation: foreach";
    if (clip) fields += fmt::format(", clip_grad_norm: {}", *clip);
    draft_.training("optimizer", "{" + fields + "}", name.comment.empty() ? "optimizer._component_, clip_grad_norm" : name.comment);
  }

  void strategy() {
    const ConfigNode* device = root_.take("device");
    (void)device;
    const auto replicas = root_.whole("data_parallel_replicate_dim", 1);
    [[maybe_unused]] const auto shards = root_.whole("data_parallel_shard_dim", -1);
    describe_cluster(draft_, options_, 0, 0);
    draft_.strategy("fsdp2", "torchtune's distributed recipes shard with FSDP2");
    if (replicas.value_or(1) > 1) draft_.option("replicate", std::to_string(*replicas), "data_parallel_replicate_dim");
    if (const ConfigNode* reshard = root_.take("fsdp_reshard_after_forward"))
      draft_.option("reshard_after_forward", *reshard, "fsdp_reshard_after_forward");
    if (root_.on("fsdp_cpu_offload")) draft_.training("offload", "{parameters: cpu, optimizer: cpu}", "fsdp_cpu_offload");
    root_.without_effect({"custom_sharded_layers"}, "embedding and output as units of their own: the blocks are the units");
  }

  ScenarioDraft& draft_;
  const ImportOptions& options_;
  ForeignMap root_;
  ModelFacts facts_;
};

}  // namespace

Result<Imported> import_torchtune(const Source& source, const ImportOptions& options) {
  const auto root = read_yaml(source);
  if (!root) return tl::unexpected(root.error());
  ScenarioDraft draft;
  draft.origin = "the torchtune recipe " + std::filesystem::path(source.name).filename().string();
  const ConfigNode* model = root->find("model");
  if (model == nullptr || model->find("_component_") == nullptr) {
    draft.problem(root->where, "not a torchtune recipe: it has no 'model' with a '_component_'");
    return std::move(draft).finish(options);
  }
  TorchtuneReader(*root, draft, options).read();
  return std::move(draft).finish(options);
}

}  // namespace shardsim
