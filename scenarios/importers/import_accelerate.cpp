// SPDX-License-Identifier: Apache-2.0
// accelerate's launch configuration: FSDP 1 and 2, DeepSpeed, plain data parallelism. Defaults are those of accelerate's plugins
// (utils/dataclasses.py).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "scenarios/importers/import_deepspeed.hpp"
#include "scenarios/importers/import_fsdp.hpp"

namespace shardsim {
namespace {

class AccelerateReader {
 public:
  AccelerateReader(const ConfigNode& tree, ScenarioDraft& draft, const ModelFacts& model, const ImportOptions& options)
      : tree_(tree), draft_(draft), model_(model), options_(options), root_(&tree, "", draft) {}

  void read() {
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
      draft_.problem(type->where, fmt::format("distributed_type {} is not data parallelism on GPUs that is modelled", in_quotes(kind)),
                     {"imported: FSDP, DEEPSPEED, MULTI_GPU, NO"});
    }
    compile();
    parallelism();
    root_.without_effect({"compute_environment",
                          "debug",
                          "enable_cpu_affinity",
                          "machine_rank",
                          "main_training_function",
                          "main_process_ip",
                          "main_process_port",
                          "rdzv_backend",
                          "rdzv_endpoint",
                          "rdzv_conf",
                          "same_network",
                          "tpu_env",
                          "tpu_use_cluster",
                          "tpu_use_sudo",
                          "tpu_name",
                          "tpu_zone",
                          "commands",
                          "command_file",
                          "use_cpu",
                          "gpu_ids",
                          "num_cpu_threads_per_process",
                          "downcast_bf16",
                          "deepspeed_multinode_launcher",
                          "config_file",
                          "monitor_interval",
                          "max_restarts",
                          "mpirun_config",
                          "ipex_config"});
    root_.refuse("megatron_lm_config", "Megatron-LM's parallelism is imported from its own arguments (import megatron)");
    root_.not_modelled("fp8_config", "fp8 products are timed as bf16");
    root_.finish();
  }

 private:
  void shape() {
    const ConfigNode* node = root_.take("num_processes");
    const std::int64_t processes = root_.whole("num_processes", 1).value_or(0), machines = root_.whole("num_machines", 1).value_or(0);
    nodes_ = std::max<std::int64_t>(machines, processes > 0 ? 1 : 0);
    if (processes > 0 && processes % nodes_ != 0)
      return draft_.problem(node->where, fmt::format("{} processes do not spread evenly over {} machines", processes, nodes_));
    gpus_per_node_ = processes > 0 ? processes / nodes_ : 0;
  }

  void batch(std::optional<std::int64_t> accumulation) {
    draft_.training("sequence_length", std::to_string(model_.sequence_length), "not in the file");
    draft_.training("micro_batch_size", "1", "not in the file: an argument of the training script");
    draft_.training("gradient_accumulation_steps", std::to_string(accumulation.value_or(1)),
                    accumulation ? "gradient_accumulation_steps" : "not in the file");
    draft_.note(fmt::format("1 sequence of {} tokens a rank (arguments of the training script, not in the file)", model_.sequence_length));
  }

  std::string mixed_precision() {
    const std::string word = root_.choice("mixed_precision", {"no", "fp16", "bf16", "fp8"}).value_or("no");
    if (word != "fp8") return word;
    draft_.ignore("mixed_precision", root_.take("mixed_precision")->where, "fp8 products are timed as bf16", Effect::changes);
    return "bf16";
  }

  void fsdp() {
    draft_.training("stack", "accelerate", "what the software costs");
    describe_cluster(draft_, options_, nodes_, gpus_per_node_);
    batch(root_.whole("gradient_accumulation_steps", 1));
    ForeignMap block = root_.section("fsdp_config");
    draft_fsdp(block, draft_, {.dtype = mixed_precision(), .nodes = options_.nodes > 0 ? options_.nodes : nodes_});
  }

  void replicated(bool single) {
    describe_cluster(draft_, options_, single && nodes_ == 0 ? 1 : nodes_, single && gpus_per_node_ == 0 ? 1 : gpus_per_node_);
    batch(root_.whole("gradient_accumulation_steps", 1));
    draft_.training("precision", autocast_precision(mixed_precision()), "mixed_precision");
    draft_.strategy("ddp", "distributed_type");
  }

  void deepspeed() {
    ForeignMap block = root_.section("deepspeed_config");
    if (const ConfigNode* file = block.take("deepspeed_config_file")) {
      if (root_.take("mixed_precision") != nullptr) root_.without_effect({"mixed_precision"}, "DeepSpeed's own file decides");
      if (const auto tree = read_deepspeed_file(*file, draft_)) draft_deepspeed(*tree, draft_, context(), options_);
    } else {
      inline_deepspeed(block);
    }
    block.without_effect({"zero3_init_flag", "zero3_save_16bit_model", "deepspeed_multinode_launcher", "deepspeed_hostfile",
                          "deepspeed_exclusion_filter", "deepspeed_inclusion_filter", "deepspeed_moe_layer_cls_names",
                          "seq_parallel_communication_data_type"});
    block.finish();
  }

  [[nodiscard]] DeepSpeedContext context() const { return {.model = model_, .nodes = nodes_, .gpus_per_node = gpus_per_node_}; }

  /// The keys of accelerate's DeepSpeedPlugin become the DeepSpeed configuration that it would build.
  void inline_deepspeed(ForeignMap& block) {
    ConfigNode config = map(), zero = map();
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
    draft_deepspeed(config, draft_, context(), options_);
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
    value.where = tree_.where;
    value.text = "true";
    ConfigNode block = map();
    block.entries.push_back({"enabled", tree_.where, value});
    return block;
  }

  void compile() {
    ForeignMap block = root_.section("dynamo_config");
    const std::string prefix = "dynamo_";
    const auto backend = block.word(Keys{"dynamo_backend", "backend"});
    block.without_effect(
        {"dynamo_mode", "dynamo_use_dynamic", "dynamo_use_fullgraph", "dynamo_use_regional_compilation", "mode", "dynamic", "fullgraph"});
    block.finish();
    if (!backend || lower(*backend) == "no") return;
    if (lower(*backend) == "eager" || lower(*backend) == "aot_eager")
      return draft_.note("dynamo's backend '" + *backend + "' fuses nothing");
    draft_.training("compile", "true", "dynamo_config.dynamo_backend");
  }

  /// The n-dimensional mesh of newer versions: replication is data parallelism, the rest is not.
  void parallelism() {
    ForeignMap block = root_.section("parallelism_config");
    const std::string prefix = "parallelism_config_";
    const auto replicas = block.whole(prefix + "dp_replicate_size", 1).value_or(1);
    [[maybe_unused]] const auto shards = block.whole(prefix + "dp_shard_size", -1);  // what is left of the world
    if (replicas > 1) draft_.option("replicate", std::to_string(replicas), "parallelism_config_dp_replicate_size");
    block.not_modelled(prefix + "tp_size", "tensor parallelism: its ranks are assumed to be data-parallel ones that hold the whole width",
                       {"1"});
    block.not_modelled(prefix + "cp_size", "context parallelism: its ranks are assumed to be data-parallel ones with whole sequences",
                       {"1"});
    block.not_modelled(prefix + "sp_size",
                       "each sequence is split over these ranks: they are assumed to be data-parallel ones with whole sequences", {"1"});
    for (const char* key :
         {"sp_backend", "sp_seq_length", "sp_seq_length_is_variable", "sp_attn_implementation", "cp_backend", "cp_comm_strategy"})
      block.without_effect({prefix + key});
    block.finish();
  }

  const ConfigNode& tree_;
  ScenarioDraft& draft_;
  const ModelFacts& model_;
  const ImportOptions& options_;
  ForeignMap root_;
  std::int64_t nodes_ = 0, gpus_per_node_ = 0;
};

}  // namespace

Result<Imported> import_accelerate(const Source& source, const ImportOptions& options) {
  auto root = read_yaml(source);
  if (!root) return tl::unexpected(root.error());
  ScenarioDraft draft;
  draft.origin = "the accelerate configuration " + std::filesystem::path(source.name).filename().string();
  if (root->find("distributed_type") == nullptr) {
    draft.problem(root->where, "not an accelerate configuration: it has no key 'distributed_type'");
    return std::move(draft).finish(options);
  }
  const ModelFacts model = describe_model(draft, options);
  AccelerateReader(*root, draft, model, options).read();
  return std::move(draft).finish(options);
}

}  // namespace shardsim
