// SPDX-License-Identifier: Apache-2.0
#include "scenarios/importers/import_trainer.hpp"

#include <fmt/format.h>

#include <sstream>

#include "scenarios/importers/import_deepspeed.hpp"
#include "scenarios/importers/import_fsdp.hpp"

namespace shardsim {
namespace {

void adapters(const TrainerFacts& f, ScenarioDraft& draft) {
  if (!f.quantization.empty()) draft.model("quantization", f.quantization, "load_in_4bit, load_in_8bit");
  if (!f.lora_rank) return;
  std::string list;
  for (const auto& target : f.lora_targets) list += (list.empty() ? "" : ", ") + yaml_scalar(target);
  if (f.lora_targets.empty()) {
    list = "q_proj, v_proj";
    draft.note("LoRA on q_proj and v_proj, as PEFT does for Llama (the file names no target modules)");
  }
  draft.model("trainable", fmt::format("{{lora: {{rank: {}, targets: [{}]}}}}", *f.lora_rank, list), f.lora_key);
}

void training(const TrainerFacts& f, const ModelFacts& model, ScenarioDraft& draft) {
  const std::int64_t sequence = f.sequence.value_or(model.sequence_length);
  if (!f.sequence) draft.note(fmt::format("sequences of {} tokens (not in the file)", sequence));
  draft.training("sequence_length", std::to_string(sequence), f.sequence ? f.sequence_key : "not in the file");
  if (f.checkpointing.value_or(false))
    draft.training("activation_checkpointing", f.reentrant ? fmt::format("{{kind: full, use_reentrant: {}}}", *f.reentrant) : "full",
                   f.checkpointing_key);
  if (!f.attention.empty()) draft.training("attention", f.attention, "attn_implementation");
  if (f.compile) draft.training("compile", "true", "torch_compile");
  if (f.fused_loss) draft.training("loss", "fused", "a fused linear cross-entropy: counted as a fused one on whole logits");
  draft.training("loss_in_model", "true", "the model computes its loss");
}

void optimizer(const TrainerFacts& f, ScenarioDraft& draft) {
  OptimizerName name{"adamw", "not in the file: the Trainer's default"};
  if (!f.optimizer.empty()) name = optimizer_name(f.optimizer);
  if (name.name.empty())
    return draft.problem(f.optimizer_node != nullptr ? f.optimizer_node->where : Where{},
                         fmt::format("unknown optimizer {}", in_quotes(f.optimizer)));
  std::string fields = "name: " + name.name;
  // The Trainer's default is adamw_torch_fused since transformers 4.53; adamw_torch takes torch's default, foreach.
  if (name.name == "adamw" || name.name == "adam")
    fields += lower(f.optimizer) == "adamw_torch" ? ", implementation: foreach" : ", implementation: fused";
  if (name.name == "adamw" || name.name == "adam") fields += ", weight_decay_groups: split";
  if (f.clip > 0) fields += fmt::format(", clip_grad_norm: {}", f.clip);
  draft.training("optimizer", "{" + fields + "}", name.comment.empty() ? f.optimizer_key : name.comment);
}

void batch(const TrainerFacts& f, ScenarioDraft& draft) {
  draft.training("micro_batch_size", std::to_string(f.micro_batch.value_or(8)), f.micro_batch ? f.micro_key : "the Trainer's default");
  draft.training("gradient_accumulation_steps", std::to_string(f.accumulation.value_or(1)),
                 f.accumulation ? f.accumulation_key : "the Trainer's default");
}

/// Plain data parallelism: autocast over weights in the dtype in which they were loaded.
std::string replicated_precision(const TrainerFacts& f) {
  const std::string loaded = f.loaded.empty() ? "fp32" : f.loaded;
  if (loaded == "fp32") return autocast_precision(f.compute);
  return loaded == "bf16" ? "pure-bf16" : fmt::format("{{parameters: {0}, gradients: {0}, reduce: {0}, master: none}}", loaded);
}

}  // namespace

std::vector<std::string> all_linear() { return {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}; }

void read_fsdp_words(const std::vector<std::string>& words, TrainerFacts& facts) {
  for (const std::string& text : words) {
    std::istringstream in(text);
    for (std::string word; in >> word;) {
      const std::string lowered = lower(word);
      facts.sharded = facts.sharded || boolean_word(lowered) != false;
      if (lowered == "offload") facts.offload = true;
      if (lowered == "full_shard" || lowered == "shard_grad_op" || lowered == "no_shard" || lowered == "hybrid_shard" ||
          lowered == "hybrid_shard_zero2")
        facts.sharding = lowered;
    }
  }
}

void draft_trainer(const TrainerFacts& f, ScenarioDraft& draft, const ImportOptions& options) {
  const ModelFacts model = describe_model(draft, options, f.model, f.model_key);
  adapters(f, draft);
  training(f, model, draft);
  if (f.deepspeed != nullptr) {
    DeepSpeedContext context{.model = model,
                             .nodes = f.nodes,
                             .gpus_per_node = f.gpus_per_node,
                             .micro_batch = f.micro_batch.value_or(8),
                             .accumulation = f.accumulation.value_or(1),
                             .clip = f.clip};
    context.dtype = f.compute != "no" ? f.compute : f.loaded;
    context.optimizer = f.optimizer;
    if (f.deepspeed->kind == ConfigNode::Kind::map) return draft_deepspeed(*f.deepspeed, draft, context, options);
    if (const auto tree = read_deepspeed_file(*f.deepspeed, draft)) draft_deepspeed(*tree, draft, context, options);
    return;
  }
  draft.training("stack", "transformers", "what the software costs");
  describe_cluster(draft, options, f.nodes, f.gpus_per_node, f.nodes > 0 || f.gpus_per_node > 0 ? "the launcher's arguments" : "");
  batch(f, draft);
  optimizer(f, draft);
  if (f.sharded || f.fsdp != nullptr) {
    FsdpContext context{.dtype = f.compute != "no"  ? f.compute
                                 : f.loaded.empty() ? "no"
                                                    : f.loaded,
                        .nodes = options.nodes > 0 ? options.nodes : f.nodes,
                        .version = f.fsdp_version,
                        .sharding = f.sharding,
                        .offload = f.offload};
    ForeignMap nothing(nullptr, "fsdp_config", draft);
    draft_fsdp(f.fsdp != nullptr ? *f.fsdp : nothing, draft, context);
    return;
  }
  draft.training("precision", replicated_precision(f), f.precision_key);
  draft.strategy("ddp", "neither DeepSpeed nor FSDP in the file");
}

}  // namespace shardsim
