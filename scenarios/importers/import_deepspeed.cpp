// SPDX-License-Identifier: Apache-2.0
#include "scenarios/importers/import_deepspeed.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <numeric>

namespace shardsim {
namespace {

constexpr std::string_view not_traffic = "no effect on the traffic, memory or time of one step";
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

class DeepSpeedReader {
 public:
  DeepSpeedReader(const ConfigNode& tree, ScenarioDraft& draft, const DeepSpeedContext& context, const ImportOptions& options)
      : tree_(tree),
        draft_(draft),
        context_(context),
        options_(options),
        root_(&tree, "", draft),
        zero_(root_.take("zero_optimization"), "zero_optimization", draft) {}

  Problems read() {
    stage();
    batch();
    precision();
    optimizer();
    training();
    zero();
    root_.ignore_all({"steps_per_print", "wall_clock_breakdown", "scheduler", "monitor_config", "comms_config", "comms_logger",
                      "tensorboard", "csv_monitor", "wandb", "flops_profiler", "log", "_comment", "zero_allow_untested_optimizer",
                      "prescale_gradients", "gradient_predivide_factor", "checkpoint", "dump_state"},
                     not_traffic);
    root_.ignore("activation_checkpointing",
                 "settings of DeepSpeed's checkpoint function; whether the model calls it is training.activation_checkpointing");
    root_.ignore("tensor_parallel", "only data parallelism is modelled: each rank holds the whole width");
    root_.finish();
    return std::move(problems_);
  }

 private:
  /// A count of at least one; "auto" and an absent key give zero.
  std::int64_t count(const ConfigNode* node, std::string_view key) {
    if (node == nullptr || is_auto(node)) return 0;
    const auto value = whole_number(node);
    if (value && *value > 0) return *value;
    problems_.add(node->where, fmt::format("'{}' is a whole number above 0, or \"auto\"", key));
    return 0;
  }

  void stage() {
    const ConfigNode* node = zero_.take("stage");
    const auto stage = node == nullptr ? std::optional<std::int64_t>(0) : whole_number(node);
    if (!stage || *stage < 0 || *stage > 3) {
      problems_.add(node->where, "the ZeRO stage is 0, 1, 2 or 3");
      return draft_.strategy("zero1");
    }
    stage_ = *stage;
    if (stage_ == 0) {
      draft_.strategy("naive_dp", "no ZeRO: DeepSpeed all-reduces the gradients after backward");
      draft_.option("all_reduce", "flat", "");
    } else if (zero_.take("mics_shard_size") != nullptr && stage_ == 3) {
      draft_.strategy("mics");
      draft_.option("mics_shard_size", *zero_.take("mics_shard_size"), "zero_optimization.mics_shard_size");
    } else {
      draft_.strategy(fmt::format("zero{}", stage_));
    }
  }

  void batch() {
    const ConfigNode* total_node = root_.take("train_batch_size");
    const ConfigNode* micro_node = root_.take("train_micro_batch_size_per_gpu");
    const ConfigNode* accumulation_node = root_.take("gradient_accumulation_steps");
    const std::int64_t total = count(total_node, "train_batch_size");
    std::int64_t micro = count(micro_node, "train_micro_batch_size_per_gpu");
    if (micro == 0 && is_auto(micro_node) && total == 0) micro = trainer_micro_batch;
    const auto solved = solve_batch(total, micro, count(accumulation_node, "gradient_accumulation_steps"), known_world());
    if (!solved || solved->world > most_ranks) {
      problems_.add((total_node != nullptr ? total_node : &tree_)->where,
                    "no number of GPUs gives this train_batch_size with this micro-batch and accumulation (it is their product)");
      return;
    }
    draft_.training("sequence_length", std::to_string(context_.model.sequence_length), "not in the file");
    draft_.training("micro_batch_size", std::to_string(solved->micro), from(micro_node, "auto: TrainingArguments' default", total));
    draft_.training("gradient_accumulation_steps", std::to_string(solved->accumulation),
                    from(accumulation_node, "auto: TrainingArguments' default", total));
    cluster(solved->world, total != 0);
  }

  static std::string from(const ConfigNode* node, std::string_view automatic, std::int64_t total) {
    if (node != nullptr && !is_auto(node)) return {};
    if (total != 0) return "from train_batch_size";
    return is_auto(node) ? std::string(automatic) : "not in the file";
  }

  [[nodiscard]] std::int64_t known_world() const {
    const std::int64_t nodes = options_.nodes > 0 ? options_.nodes : context_.nodes;
    const std::int64_t gpus = options_.gpus_per_node > 0 ? options_.gpus_per_node : context_.gpus_per_node;
    return nodes > 0 || gpus > 0 ? std::max<std::int64_t>(nodes, 1) * (gpus > 0 ? gpus : 8) : 0;
  }

  void cluster(std::int64_t world, bool from_batch) {
    if (known_world() > 0) return describe_cluster(draft_, options_, context_.nodes, context_.gpus_per_node);
    std::string comment = from_batch && world != 8 ? "from train_batch_size" : "";
    if (const auto group = whole_number(find_in_zero("zero_hpz_partition_size"));
        group && *group > 1 && *group <= most_ranks && world % *group != 0) {
      world = std::lcm(world, *group);
      comment = "the least that zero_hpz_partition_size divides";
    }
    std::int64_t per_node = 8;
    while (world % per_node != 0) --per_node;
    describe_cluster(draft_, options_, comment.empty() ? 0 : world / per_node, per_node, comment);
  }

  [[nodiscard]] const ConfigNode* find_in_zero(std::string_view key) const {
    const ConfigNode* zero = tree_.find("zero_optimization");
    return zero == nullptr ? nullptr : zero->find(key);
  }

  /// "enabled" of a block such as fp16: true, false or auto.
  enum class Switch : std::uint8_t { absent, off, on, automatic };
  Switch enabled(std::string_view block) {
    const ConfigNode* node = root_.take(block);
    const ConfigNode* value = node == nullptr ? nullptr : node->find("enabled");
    if (value == nullptr) return Switch::absent;
    return is_auto(value) ? Switch::automatic : truthy(value) ? Switch::on : Switch::off;
  }

  static std::string dtype(const ConfigNode* node) {
    const std::string word = node == nullptr ? "" : lower(node->text);
    if (word == "fp32" || word == "float32") return "fp32";
    if (word == "fp16" || word == "float16" || word == "half") return "fp16";
    if (word == "bf16" || word == "bfloat16") return "bf16";
    return {};
  }

  std::string model_dtype() {
    const Switch fp16 = enabled("fp16");
    const Switch bf16 = std::max(enabled("bf16"), enabled("bfloat16"));
    if (bf16 == Switch::on) return "bf16";
    if (fp16 == Switch::on) return "fp16";
    if (bf16 == Switch::automatic) {
      draft_.note("training runs with --bf16 (the file leaves bf16 and fp16 to the launcher)");
      return "bf16";
    }
    if (fp16 == Switch::automatic) {
      draft_.note("training runs with --fp16 (the file leaves it to the launcher)");
      return "fp16";
    }
    return "fp32";
  }

  void precision() {
    const bool amp = enabled("amp") == Switch::on;
    const std::string model = model_dtype();
    const ConfigNode* types = root_.take("data_types");
    std::string gradients = dtype(types == nullptr ? nullptr : types->find("grad_accum_dtype"));
    const std::string reduce = dtype(root_.take("communication_data_type"));
    if (amp && model == "fp32")
      return draft_.training("precision", "{parameters: fp32, compute: fp16, gradients: fp32, reduce: fp32, master: none}", "amp");
    if (stage_ == 0 && !gradients.empty() && gradients != model) {
      draft_.note("gradients accumulate in the dtype of the parameters");
      gradients.clear();
    }
    const bool plain = gradients.empty() && reduce.empty();
    if (plain && model == "bf16") return draft_.training("precision", "mixed");
    if (plain && model == "fp32") return draft_.training("precision", "fp32", "neither fp16 nor bf16 is on in the file");
    draft_.training("precision", precision_map(model, gradients.empty() ? model : gradients, reduce, model == "fp32" ? "none" : "fp32"));
  }

  void optimizer() {
    const ConfigNode* block = root_.take("optimizer");
    const ConfigNode* type = block == nullptr ? nullptr : block->find("type");
    const ConfigNode* params = block == nullptr ? nullptr : block->find("params");
    OptimizerName name{"adamw", type == nullptr ? "not in the file: the Trainer's default" : ""};
    if (type != nullptr) name = optimizer_name(type->text);
    if (name.name.empty()) {
      problems_.add(type->where, fmt::format("unknown optimizer '{}'", type->text));
      return;
    }
    std::string fields = "name: " + name.name;
    const bool torch_adam = params != nullptr && truthy(params->find("torch_adam"));
    if (name.name.starts_with("adam")) fields += fmt::format(", implementation: {}", torch_adam ? "foreach" : "fused");
    if (const double clip = gradient_clipping(); clip > 0) fields += fmt::format(", clip_grad_norm: {}", clip);
    draft_.training("optimizer", "{" + fields + "}", name.comment);
    if (params != nullptr)
      for (const auto& entry : params->entries)
        if (entry.key != "torch_adam") draft_.ignore("optimizer.params." + entry.key, entry.where, std::string(not_traffic));
  }

  double gradient_clipping() {
    const ConfigNode* node = root_.take("gradient_clipping");
    return is_auto(node) ? trainer_clip : real_number(node).value_or(0);
  }

  void training() {
    const ConfigNode* compile = root_.take("compile");
    if (compile != nullptr && compile->kind == ConfigNode::Kind::map &&
        (truthy(compile->find("deepcompile")) || !truthy(compile->find("disable"))))
      draft_.training("compile", "true");
    const std::string parameters = offload_target(zero_.take("offload_param"), truthy(zero_.take("cpu_offload_params")));
    const std::string states = offload_target(zero_.take("offload_optimizer"), truthy(zero_.take("cpu_offload")));
    if (parameters != "none" || states != "none")
      draft_.training("offload", fmt::format("{{parameters: {}, optimizer: {}}}", parameters, states));
  }

  static std::string offload_target(const ConfigNode* block, bool legacy) {
    const ConfigNode* device = block == nullptr ? nullptr : block->find("device");
    if (device != nullptr && (device->text == "cpu" || device->text == "nvme")) return device->text;
    return legacy ? "cpu" : "none";
  }

  /// Options of the strategy, with "auto" by Hugging Face's rule.
  void zero() {
    const std::int64_t hidden = context_.model.hidden_size;
    automatic("reduce_bucket_size", hidden * hidden, "auto: hidden^2");
    automatic("stage3_prefetch_bucket_size", hidden * hidden * 9 / 10, "auto: 0.9 hidden^2");
    automatic("stage3_param_persistence_threshold", 10 * hidden, "auto: 10 hidden");
    zero_.ignore_all({"stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save", "load_from_fp32_weights",
                      "elastic_checkpoint", "ignore_unused_parameters"},
                     not_traffic);
    zero_.rest_as_options();
  }

  void automatic(std::string_view key, std::int64_t value, std::string comment) {
    if (!is_auto(find_in_zero(key))) return;
    const bool stage3_only = key.starts_with("stage3_");
    if (stage3_only && stage_ != 3) return zero_.ignore(key, "for ZeRO stage 3 only");
    [[maybe_unused]] const ConfigNode* taken = zero_.take(key);
    draft_.option(key, std::to_string(value), std::move(comment));
  }

  const ConfigNode& tree_;
  ScenarioDraft& draft_;
  const DeepSpeedContext& context_;
  const ImportOptions& options_;
  ForeignMap root_, zero_;
  std::int64_t stage_ = 0;
  Problems problems_;
};

}  // namespace

Problems draft_deepspeed(const ConfigNode& root, ScenarioDraft& draft, const DeepSpeedContext& context, const ImportOptions& options) {
  Problems problems;
  if (root.kind != ConfigNode::Kind::map) {
    problems.add(root.where, "a DeepSpeed configuration is a map");
    return problems;
  }
  return DeepSpeedReader(root, draft, context, options).read();
}

Result<Imported> import_deepspeed(const Source& source, const ImportOptions& options) {
  auto root = read_json(source);
  if (!root) return tl::unexpected(root.error());
  ScenarioDraft draft;
  draft.origin = "the DeepSpeed configuration " + std::filesystem::path(source.name).filename().string();
  const auto model = describe_model(draft, options);
  if (!model) return tl::unexpected(model.error());
  Problems problems = draft_deepspeed(*root, draft, {*model, 0, 0}, options);
  if (!problems.empty()) return tl::unexpected(std::move(problems));
  return std::move(draft).finish();
}

}  // namespace shardsim
