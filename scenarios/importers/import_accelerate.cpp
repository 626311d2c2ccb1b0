// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/importers/import_deepspeed.hpp"

namespace shardsim {
namespace {

constexpr std::string_view launcher_only = "tells the launcher where to run; no effect on one step";
constexpr std::string_view not_step = "no effect on the traffic, memory or time of one step";

/// torch's ShardingStrategy by name or by the number that accelerate also accepts.
std::string sharding_strategy(const ConfigNode* node) {
  if (node == nullptr) return "FULL_SHARD";
  constexpr std::array<std::string_view, 5> by_number{"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"};
  if (const auto number = whole_number(node); number && *number >= 1 && *number <= 5)
    return std::string(by_number[static_cast<std::size_t>(*number - 1)]);
  std::string name = node->text;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return name == "HYBRID_SHARD_ZERO2" ? "_HYBRID_SHARD_ZERO2" : name;
}

class AccelerateReader {
 public:
  AccelerateReader(const ConfigNode& tree, ScenarioDraft& draft, const ModelFacts& model, const ImportOptions& options)
      : tree_(tree), draft_(draft), model_(model), options_(options), root_(&tree, "", draft) {}

  Problems read() {
    shape();
    const ConfigNode* type = root_.take("distributed_type");
    const std::string kind = type == nullptr ? "NO" : type->text;
    if (kind == "FSDP") {
      fsdp();
    } else if (kind == "DEEPSPEED") {
      deepspeed();
    } else if (kind == "MULTI_GPU" || kind == "NO") {
      replicated(kind == "NO");
    } else {
      problems_.add(type->where, fmt::format("distributed_type '{}' is not data parallelism on GPUs that is modelled", kind),
                    {"imported: FSDP, DEEPSPEED, MULTI_GPU, NO"});
    }
    parallelism();
    root_.ignore_all({"compute_environment", "debug", "enable_cpu_affinity", "machine_rank", "main_training_function", "main_process_ip",
                      "main_process_port", "rdzv_backend", "same_network", "tpu_env", "tpu_use_cluster", "tpu_use_sudo", "use_cpu",
                      "gpu_ids", "num_cpu_threads_per_process", "downcast_bf16", "deepspeed_multinode_launcher", "dynamo_config"},
                     launcher_only);
    root_.finish();
    return std::move(problems_);
  }

 private:
  void shape() {
    const std::int64_t processes = whole_number(root_.take("num_processes")).value_or(0);
    nodes_ = std::max<std::int64_t>(whole_number(root_.take("num_machines")).value_or(0), processes > 0 ? 1 : 0);
    if (processes > 0 && processes % nodes_ != 0) {
      problems_.add(tree_.find("num_processes")->where,
                    fmt::format("{} processes do not spread evenly over {} machines", processes, nodes_));
      return;
    }
    gpus_per_node_ = processes > 0 ? processes / nodes_ : 0;
  }

  void batch(std::int64_t accumulation) {
    draft_.training("sequence_length", std::to_string(model_.sequence_length), "not in the file");
    draft_.training("micro_batch_size", "1", "not in the file: an argument of the training script");
    draft_.training("gradient_accumulation_steps", std::to_string(accumulation));
  }

  std::string mixed_precision() {
    const ConfigNode* node = root_.take("mixed_precision");
    const std::string word = node == nullptr ? "no" : lower(node->text);
    if (word == "fp8") {
      draft_.note("fp8 products are timed as bf16");
      return "bf16";
    }
    return word == "bf16" || word == "fp16" ? word : "no";
  }

  /// accelerate keeps the parameters in fp32 and lets FSDP cast for compute and reduction alike (utils/dataclasses.py).
  void fsdp_precision() {
    const std::string word = mixed_precision();
    if (word == "no") return draft_.training("precision", "fp32", "mixed_precision: no");
    draft_.training("precision", precision_map(word, word, word, "fp32"));
  }

  void fsdp() {
    ForeignMap block(root_.take("fsdp_config"), "fsdp_config", draft_);
    describe_cluster(draft_, options_, nodes_, gpus_per_node_);
    batch(whole_number(root_.take("gradient_accumulation_steps")).value_or(1));
    fsdp_precision();
    if (truthy(block.take("fsdp_activation_checkpointing"))) draft_.training("activation_checkpointing", "full");
    if (truthy(block.take("fsdp_offload_params"))) draft_.training("offload", "{parameters: cpu, optimizer: cpu}");
    if (whole_number(block.take("fsdp_version")).value_or(1) == 2) {
      fsdp2(block);
    } else {
      fsdp1(block);
    }
    wrapping(block);
    block.ignore_all({"fsdp_state_dict_type", "fsdp_sync_module_states", "fsdp_cpu_ram_efficient_loading", "fsdp_ignored_modules",
                      "fsdp_backward_prefetch_policy"},
                     not_step);
    block.finish();
  }

  void wrapping(ForeignMap& block) {
    const ConfigNode* policy = block.take("fsdp_auto_wrap_policy");
    block.ignore("fsdp_transformer_layer_cls_to_wrap", "the model's repeated block is the unit");
    block.ignore("fsdp_min_num_params", "the model's repeated block is the unit");
    if (policy != nullptr && policy->text != "TRANSFORMER_BASED_WRAP")
      draft_.note(fmt::format("each block of the model is one unit ({} in the file)", policy->text));
  }

  void fsdp1(ForeignMap& block) {
    draft_.strategy("fsdp1");
    const std::string sharding = sharding_strategy(block.take("fsdp_sharding_strategy"));
    draft_.option("sharding_strategy", sharding, "");
    // Without process groups of its own, FSDP shards inside a node and replicates across nodes (_init_utils.py).
    const std::int64_t replicas = options_.nodes > 0 ? options_.nodes : nodes_;
    if (sharding.find("HYBRID") != std::string::npos && replicas > 1)
      draft_.option("replicate", std::to_string(replicas), "one replica a node");
    for (const std::string_view key : {"backward_prefetch", "forward_prefetch", "use_orig_params", "limit_all_gathers"}) {
      const std::string written = "fsdp_" + std::string(key);
      if (const ConfigNode* value = block.take(written)) draft_.option(key, *value, "fsdp_config." + written);
    }
    block.ignore("fsdp_reshard_after_forward", "an option of FSDP2");
  }

  void fsdp2(ForeignMap& block) {
    draft_.strategy("fsdp2");
    if (const ConfigNode* reshard = block.take("fsdp_reshard_after_forward")) {
      const std::string word = lower(reshard->text);
      draft_.option("reshard_after_forward", word == "false" || word == "shard_grad_op" || word == "no" ? "false" : "true", "");
    }
    block.ignore_all({"fsdp_sharding_strategy", "fsdp_backward_prefetch", "fsdp_forward_prefetch", "fsdp_use_orig_params"},
                     "an option of FSDP1");
  }

  void replicated(bool single) {
    describe_cluster(draft_, options_, single && nodes_ == 0 ? 1 : nodes_, single && gpus_per_node_ == 0 ? 1 : gpus_per_node_);
    batch(whole_number(root_.take("gradient_accumulation_steps")).value_or(1));
    const std::string word = mixed_precision();
    if (word == "no") {
      draft_.training("precision", "fp32", "mixed_precision: no");
    } else {
      draft_.training("precision", fmt::format("{{parameters: fp32, compute: {}, gradients: fp32, reduce: fp32, master: none}}", word));
    }
    draft_.strategy("ddp");
  }

  void deepspeed() {
    ForeignMap block(root_.take("deepspeed_config"), "deepspeed_config", draft_);
    if (const ConfigNode* file = block.take("deepspeed_config_file")) {
      deepspeed_file(*file);
    } else {
      inline_deepspeed(block);
    }
    block.ignore_all({"zero3_init_flag", "zero3_save_16bit_model", "deepspeed_multinode_launcher", "deepspeed_hostfile",
                      "deepspeed_exclusion_filter", "deepspeed_inclusion_filter", "deepspeed_moe_layer_cls_names"},
                     not_step);
    block.ignore("seq_parallel_communication_data_type", "only data parallelism is modelled");
    block.finish();
  }

  void deepspeed_file(const ConfigNode& file) {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::path path = file.text;
    if (path.is_relative() && !fs::exists(path, error)) path = fs::path(file.where.source->name).parent_path() / path;
    if (!fs::exists(path, error)) {
      problems_.add(file.where, fmt::format("the DeepSpeed configuration '{}' is not there", file.text),
                    {"looked in the current folder and beside this file"});
      return;
    }
    const auto tree = read_source(path.string()).and_then([](const Source& source) { return read_json(source); });
    if (!tree) return problems_.append(tree.error());
    [[maybe_unused]] const ConfigNode* precision = root_.take("mixed_precision");  // DeepSpeed's own file decides
    problems_.append(draft_deepspeed(*tree, draft_, {model_, nodes_, gpus_per_node_}, options_));
  }

  /// The keys of accelerate's DeepSpeedPlugin become the DeepSpeed configuration that it would build.
  void inline_deepspeed(ForeignMap& block) {
    ConfigNode config = map();
    ConfigNode zero = map();
    const auto copy = [&](std::string_view from, ConfigNode& target, std::string key) {
      if (const ConfigNode* value = block.take(from)) target.entries.push_back({std::move(key), value->where, *value});
    };
    copy("zero_stage", zero, "stage");
    for (const std::string name : {"offload_optimizer", "offload_param"}) {
      ConfigNode device = map();
      copy(name + "_device", device, "device");
      copy(name + "_nvme_path", device, "nvme_path");
      if (!device.entries.empty()) zero.entries.push_back({name, tree_.where, device});
    }
    copy("gradient_accumulation_steps", config, "gradient_accumulation_steps");
    copy("gradient_clipping", config, "gradient_clipping");
    const std::string word = mixed_precision();
    if (word != "no") config.entries.push_back({word, tree_.where, enabled()});
    config.entries.push_back({"zero_optimization", tree_.where, zero});
    problems_.append(draft_deepspeed(config, draft_, {model_, nodes_, gpus_per_node_}, options_));
  }

  [[nodiscard]] ConfigNode map() const {
    ConfigNode node;
    node.kind = ConfigNode::Kind::map;
    node.where = tree_.where;
    return node;
  }

  [[nodiscard]] ConfigNode enabled() const {
    ConfigNode value;
    value.kind = ConfigNode::Kind::scalar;
    value.text = "true";
    ConfigNode block = map();
    block.entries.push_back({"enabled", tree_.where, value});
    return block;
  }

  /// The n-dimensional mesh of newer versions: replication is data parallelism, the rest is not.
  void parallelism() {
    const std::string prefix = "parallelism_config_";
    ForeignMap block(root_.take("parallelism_config"), "parallelism_config", draft_);
    const auto replicas = whole_number(block.take(prefix + "dp_replicate_size")).value_or(1);
    [[maybe_unused]] const ConfigNode* shards = block.take(prefix + "dp_shard_size");  // what is left of the world
    if (replicas > 1) draft_.option("replicate", std::to_string(replicas), "dp_replicate_size");
    block.finish("only data parallelism is modelled: the ranks of the other dimensions count as data-parallel ranks");
  }

  const ConfigNode& tree_;
  ScenarioDraft& draft_;
  const ModelFacts& model_;
  const ImportOptions& options_;
  ForeignMap root_;
  std::int64_t nodes_ = 0, gpus_per_node_ = 0;
  Problems problems_;
};

}  // namespace

Result<Imported> import_accelerate(const Source& source, const ImportOptions& options) {
  auto root = read_yaml(source);
  if (!root) return tl::unexpected(root.error());
  Problems problems;
  if (root->find("distributed_type") == nullptr) {
    problems.add(root->where, "not an accelerate configuration: it has no key 'distributed_type'");
    return tl::unexpected(problems);
  }
  ScenarioDraft draft;
  draft.origin = "the accelerate configuration " + std::filesystem::path(source.name).filename().string();
  const auto model = describe_model(draft, options);
  if (!model) return tl::unexpected(model.error());
  problems = AccelerateReader(*root, draft, *model, options).read();
  if (!problems.empty()) return tl::unexpected(std::move(problems));
  return std::move(draft).finish();
}

}  // namespace shardsim
