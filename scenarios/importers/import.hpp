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

/// What a key that sets nothing in the scenario does to the step.
enum class Effect : std::uint8_t {
  none,     ///< known to change nothing
  changes,  ///< changes the step in a way that is not modelled
  unknown,  ///< nobody has looked at it: assumed to change nothing
};

struct IgnoredKey {
  std::string key;  ///< dotted path
  Where where;
  std::string why;
  Effect effect = Effect::none;
};

struct Imported {
  std::string yaml;                 ///< the scenario
  std::vector<IgnoredKey> ignored;  ///< also listed in the scenario as comments
  std::vector<std::string> notes;   ///< what had to be assumed
  std::string summary;              ///< what was understood, for one screen
};

/// One row of the registry: a foreign format and its reader.
struct ImportFormat {
  std::string_view name;
  std::string_view reads;  ///< which files, of which versions
  Result<Imported> (*read)(const Source&, const ImportOptions&);
};
[[nodiscard]] const std::vector<ImportFormat>& import_formats();

/// Reads `file` as `format`. A file that is not data (a template with placeholders, a Python registry) is refused at its first bad place.
[[nodiscard]] Result<Imported> import_file(const std::string& format, const std::string& file, const ImportOptions& options);

/// A DeepSpeed JSON configuration. "auto" is resolved by the rule of Hugging Face's integration (transformers,
/// integrations/deepspeed.py, HfTrainerDeepSpeedConfig.trainer_config_finalize): reduce_bucket_size = hidden^2,
/// stage3_prefetch_bucket_size = 0.9 hidden^2, stage3_param_persistence_threshold = 10 hidden, the rest from TrainingArguments' defaults.
[[nodiscard]] Result<Imported> import_deepspeed(const Source& source, const ImportOptions& options);
/// A configuration of `accelerate launch` that names FSDP, DeepSpeed or plain data parallelism.
[[nodiscard]] Result<Imported> import_accelerate(const Source& source, const ImportOptions& options);
/// Arguments of Hugging Face's Trainer (and TRL's): JSON, YAML, or the command line of a script such as run_clm.py.
[[nodiscard]] Result<Imported> import_transformers(const Source& source, const ImportOptions& options);
[[nodiscard]] Result<Imported> import_axolotl(const Source& source, const ImportOptions& options);
[[nodiscard]] Result<Imported> import_llama_factory(const Source& source, const ImportOptions& options);
/// A training YAML of LLM Foundry, or of another program on Composer's Trainer.
[[nodiscard]] Result<Imported> import_llm_foundry(const Source& source, const ImportOptions& options);
[[nodiscard]] Result<Imported> import_composer(const Source& source, const ImportOptions& options);
/// A torchtitan TOML job file, or one in its style (KempnerForge).
[[nodiscard]] Result<Imported> import_torchtitan(const Source& source, const ImportOptions& options);
[[nodiscard]] Result<Imported> import_torchtune(const Source& source, const ImportOptions& options);
/// A command line of Megatron-LM, or a YAML of NeMo or Megatron-Bridge.
[[nodiscard]] Result<Imported> import_megatron(const Source& source, const ImportOptions& options);
/// A YAML of LightningCLI or LitGPT.
[[nodiscard]] Result<Imported> import_lightning(const Source& source, const ImportOptions& options);
/// A configuration that OLMo-core saves with a run.
[[nodiscard]] Result<Imported> import_olmo_core(const Source& source, const ImportOptions& options);

}  // namespace shardsim
