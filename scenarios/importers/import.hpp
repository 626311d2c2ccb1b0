// SPDX-License-Identifier: Apache-2.0
// Configuration files of other tools become scenarios: commented YAML with the option names of the library.
#pragma once

#include <string>
#include <vector>

#include "models/families/hf_config.hpp"
#include "sim/config/node.hpp"

namespace shardsim {

struct ImportOptions {
  std::string model;                               ///< a preset, or the path of a config.json; empty: what the file says
  std::string cluster = "clusters/h100-sxm.yaml";  ///< profile to put into the scenario
  std::int64_t nodes = 0, gpus_per_node = 0;       ///< 0: what the file says
  std::string output_folder;                       ///< where the scenario will stand: relative paths start there
};

/// A key of the foreign file that has no effect on the scenario.
struct IgnoredKey {
  std::string key;  ///< dotted path
  Where where;
  std::string why;
};

struct Imported {
  std::string yaml;                 ///< the scenario
  std::vector<IgnoredKey> ignored;  ///< also listed in the scenario as comments
  std::vector<std::string> notes;   ///< what had to be assumed
};

/// Foreign formats by the name used on the command line.
[[nodiscard]] const std::vector<std::string>& import_formats();

/// Reads `file` as `format`. A file that is not data (a template with placeholders, a Python registry) is refused at its first bad place.
[[nodiscard]] Result<Imported> import_file(const std::string& format, const std::string& file, const ImportOptions& options);

/// A DeepSpeed JSON configuration. "auto" is resolved by the rule of Hugging Face's integration (transformers,
/// integrations/deepspeed.py, HfTrainerDeepSpeedConfig.trainer_config_finalize): reduce_bucket_size = hidden^2,
/// stage3_prefetch_bucket_size = 0.9 hidden^2, stage3_param_persistence_threshold = 10 hidden, the rest from TrainingArguments' defaults.
[[nodiscard]] Result<Imported> import_deepspeed(const Source& source, const ImportOptions& options);
/// A configuration of `accelerate launch` that names FSDP, DeepSpeed, Megatron-LM or plain data parallelism.
[[nodiscard]] Result<Imported> import_accelerate(const Source& source, const ImportOptions& options);
/// A training YAML of LLM Foundry (Composer).
[[nodiscard]] Result<Imported> import_llm_foundry(const Source& source, const ImportOptions& options);
/// A torchtitan TOML job file, or one in its style (KempnerForge).
[[nodiscard]] Result<Imported> import_torchtitan(const Source& source, const ImportOptions& options);

}  // namespace shardsim
