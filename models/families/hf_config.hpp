// SPDX-License-Identifier: Apache-2.0
// From a Hugging Face config.json, a preset or an inline list of layers to an Architecture; from an Architecture to a Model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/model.hpp"
#include "sim/config/node.hpp"

namespace shardsim {

/// Shape of a model, independent of batch, precision and strategy. The definition is private to models/ (architecture.hpp).
struct Architecture;

/// `config` is the tree of a config.json. Unknown families are refused by name with the list of supported ones.
[[nodiscard]] Result<std::shared_ptr<const Architecture>> read_hf_config(const ConfigNode& config);
/// An inline list of layers ("layers:" of a scenario).
[[nodiscard]] Result<std::shared_ptr<const Architecture>> read_layers(const ConfigNode& layers);
/// A preset by name ("llama-3-8b").
[[nodiscard]] Result<std::shared_ptr<const Architecture>> preset(const std::string& name);
[[nodiscard]] std::vector<std::string> preset_names();
[[nodiscard]] std::vector<std::string> family_names();

/// `trainable:` of a scenario: all, LoRA adapters, or name patterns.
struct Trainable {
  bool all = true;
  std::int64_t lora_rank = 0;  ///< > 0: adapters of this rank on the modules named in `targets`, everything else frozen
  std::vector<std::string> targets;
  double lora_dropout = 0;
  std::optional<DType> lora_dtype{};  ///< adapters compute in it (PEFT's autocast_adapter_dtype: fp32); empty: in the model's
  std::vector<std::string> patterns;  ///< parameters whose name matches one of these globs train, the others do not
};

/// A Model at one batch shape and precision. Problems: a sequence longer than the learned positions, patterns that match nothing.
[[nodiscard]] Result<std::shared_ptr<const Model>> build_model(std::shared_ptr<const Architecture> architecture, const Training& training,
                                                               const Trainable& trainable = {});

}  // namespace shardsim
