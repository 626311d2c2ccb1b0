// SPDX-License-Identifier: Apache-2.0
#include "scenarios/importers/import.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace shardsim {

const std::vector<ImportFormat>& import_formats() {
  static const std::vector<ImportFormat> formats{
      {"deepspeed", "DeepSpeed JSON (0.9 to 0.18), comments allowed", import_deepspeed},
      {"accelerate", "YAML of `accelerate config` (0.20 to 1.x)", import_accelerate},
      {"transformers", "Hugging Face TrainingArguments and TRL: JSON, YAML or the script's command line (4.3x to 5.x)",
       import_transformers},
      {"axolotl", "axolotl YAML (0.4 to 0.1x)", import_axolotl},
      {"llama-factory", "LLaMA-Factory YAML or JSON (0.7 to 0.9)", import_llama_factory},
      {"llm-foundry", "LLM Foundry YAML (0.4 to 0.2x)", import_llm_foundry},
      {"composer", "YAML of another program on Composer's Trainer", import_composer},
      {"torchtitan", "torchtitan TOML (2024 to 2025), KempnerForge TOML", import_torchtitan},
      {"torchtune", "torchtune recipe YAML (0.2 to 0.6)", import_torchtune},
      {"megatron", "Megatron-LM command line; NeMo and Megatron-Bridge YAML", import_megatron},
      {"lightning", "LightningCLI YAML (2.x), LitGPT YAML", import_lightning},
      {"olmo-core", "OLMo-core's saved config.json or YAML (2.x)", import_olmo_core}};
  return formats;
}

Result<Imported> import_file(const std::string& format, const std::string& file, const ImportOptions& options) {
  const auto source = read_source(file);
  if (!source) return tl::unexpected(source.error());
  const auto& formats = import_formats();
  const auto known = std::find_if(formats.begin(), formats.end(), [&](const ImportFormat& f) { return f.name == format; });
  if (known == formats.end()) throw InputError(fmt::format("unknown format '{}'", format));
  return known->read(*source, options);
}

}  // namespace shardsim
