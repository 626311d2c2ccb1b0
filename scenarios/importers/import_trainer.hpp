// SPDX-License-Identifier: Apache-2.0
// What the programs on Hugging Face's Trainer have in common: the facts of a run, whatever their keys are called, and the scenario of them.
#pragma once

#include "scenarios/importers/foreign_map.hpp"

namespace shardsim {

/// The arguments of one run; what is empty was not in the file.
struct TrainerFacts {
  const ConfigNode* model = nullptr;  ///< name or path
  std::string model_key;
  std::optional<std::int64_t> sequence, micro_batch, accumulation;
  std::string sequence_key, micro_key = "per_device_train_batch_size", accumulation_key = "gradient_accumulation_steps";
  std::int64_t nodes = 0, gpus_per_node = 0;  ///< of a launcher in the file; 0: not said
  std::string loaded;                         ///< dtype in which the weights are loaded: fp32, bf16, fp16; empty: fp32
  std::string compute = "no";                 ///< autocast: no, bf16 or fp16
  std::string precision_key;
  std::optional<bool> checkpointing, reentrant;
  std::string checkpointing_key = "gradient_checkpointing";
  std::string optimizer, optimizer_key = "optim";
  const ConfigNode* optimizer_node = nullptr;
  double clip = 1.0;
  bool compile = false, fused_loss = false;
  std::string attention;  ///< flash or plain; empty: what the model's code takes
  // Adapters and quantised base weights.
  std::optional<std::int64_t> lora_rank;
  std::vector<std::string> lora_targets;
  std::string lora_key;
  std::string quantization;               ///< nf4, nf4-double, int8; empty: none
  const ConfigNode* deepspeed = nullptr;  ///< a path or the configuration itself
  ForeignMap* fsdp = nullptr;             ///< the block, if there is one
  bool sharded = false;                   ///< FSDP, also without a block
  std::string sharding;
  bool offload = false;
  std::int64_t fsdp_version = 1;
};

/// The modules that "all linear layers" stands for in the families that have Llama's names.
[[nodiscard]] std::vector<std::string> all_linear();

/// Fills the draft from the facts; what they leave open is assumed as the Trainer does, and said.
void draft_trainer(const TrainerFacts& facts, ScenarioDraft& draft, const ImportOptions& options);

/// FSDP as the Trainer's `fsdp` argument writes it: "full_shard auto_wrap offload".
void read_fsdp_words(const std::vector<std::string>& words, TrainerFacts& facts);

}  // namespace shardsim
