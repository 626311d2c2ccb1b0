// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <mutex>

#include "models/families/architectures.hpp"
#include "scenarios/reader/reading.hpp"

namespace shardsim {
namespace {

using ArchitecturePointer = std::shared_ptr<const Architecture>;

/// One Architecture for each file in the life of the process: sweeps build thousands of models of it.
Result<ArchitecturePointer> architecture_of(const std::shared_ptr<const ConfigNode>& config) {
  static std::mutex mutex;
  static std::map<std::shared_ptr<const ConfigNode>, ArchitecturePointer> known;  // files are read once, so the tree stands for the file
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(config); found != known.end()) return found->second;
  auto architecture = read_hf_config(*config);
  if (architecture) known.emplace(config, *architecture);
  return architecture;
}

ArchitecturePointer value_or_problems(Result<ArchitecturePointer> result, const Where& where, Problems& problems) {
  if (result) return *result;
  append_at(problems, result.error(), where);
  return nullptr;
}

/// Sweeps name the same presets thousands of times, from several threads.
Result<ArchitecturePointer> preset_once(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, ArchitecturePointer> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(name); found != known.end()) return found->second;
  auto architecture = preset(name);
  if (architecture) known.emplace(name, *architecture);
  return architecture;
}

ArchitecturePointer read_preset(const ConfigNode& name, Problems& problems) {
  const auto text = as_text(name, problems);
  return text ? value_or_problems(preset_once(*text), name.where, problems) : nullptr;
}

std::vector<std::string> read_words(const ConfigNode& node, const char* what, Problems& problems) {
  std::vector<std::string> words;
  if (node.kind != ConfigNode::Kind::list || node.items.empty())
    problems.add(node.where, std::string(what) + " must be a list of at least one name");
  for (const ConfigNode& item : node.items)
    if (const auto word = as_text(item, problems)) words.push_back(*word);
  return words;
}

Trainable read_trainable(const ConfigNode& node, Problems& problems) {
  Trainable trainable;
  if (node.kind == ConfigNode::Kind::scalar) {
    if (node.text != "all")
      problems.add(node.where, "trainable cannot be " + in_quotes(node.text),
                   {"allowed: all, {lora: {rank: 16, targets: [...]}}, or a list of name patterns"});
    return trainable;
  }
  trainable.all = false;
  if (node.kind == ConfigNode::Kind::list) {
    trainable.patterns = read_words(node, "trainable", problems);
    return trainable;
  }
  MapReader reader(node, problems, "trainable");
  if (const ConfigNode* lora = reader.require("lora")) {
    MapReader adapters(*lora, problems, "lora");
    if (adapters.require("rank")) trainable.lora_rank = adapters.integer("rank", 1, 1, 1 << 20);
    if (const ConfigNode* targets = adapters.require("targets")) trainable.targets = read_words(*targets, "targets", problems);
    trainable.lora_dropout = adapters.number("dropout", 0, 0, 1);
    if (const ConfigNode* dtype = adapters.find("dtype")) {
      trainable.lora_dtype = dtype_from(dtype->text);
      if (trainable.lora_dtype != DType::bf16 && trainable.lora_dtype != DType::fp16 && trainable.lora_dtype != DType::fp32)
        problems.add(dtype->where, "dtype cannot be " + in_quotes(dtype->text), notes_for_unknown(dtype->text, {"bf16", "fp16", "fp32"}));
    }
    adapters.finish();
  }
  reader.finish();
  return trainable;
}

/// "13 B", "350 M", 7e9.
std::optional<double> read_count(const ConfigNode& node, Problems& problems) {
  if (node.kind != ConfigNode::Kind::scalar) return as_number(node, problems, 0, 1e15);
  ConfigNode number = node;
  double scale = 1;
  for (const auto& [suffix, factor] : {std::pair{'K', 1e3}, std::pair{'M', 1e6}, std::pair{'B', 1e9}, std::pair{'T', 1e12}}) {
    if (number.text.empty() || number.text.back() != suffix) continue;
    scale = factor;
    number.text.pop_back();
    while (!number.text.empty() && number.text.back() == ' ') number.text.pop_back();
    break;
  }
  Problems own;
  const auto value = as_number(number, own, 0, 1e15);
  if (value) return *value * scale;
  problems.add(node.where, "expected a number of parameters such as 13 B, got " + in_quotes(node.text));
  return std::nullopt;
}

}  // namespace

ModelChoice read_model(const ConfigNode& block, const std::string& folder, Problems& problems) {
  ModelChoice choice;
  MapReader reader(block, problems, "model");
  const ConfigNode* config = reader.find("hf_config");
  const ConfigNode* name = reader.find("preset");
  const ConfigNode* layers = reader.find("layers");
  const ConfigNode* size = reader.find("parameters");
  const int given = (config ? 1 : 0) + (name ? 1 : 0) + (layers ? 1 : 0) + (size ? 1 : 0);
  if (given != 1 && block.kind == ConfigNode::Kind::map)
    problems.add(block.where, "model needs exactly one of the keys hf_config, preset, layers and parameters");
  if (given == 1 && config && config->kind == ConfigNode::Kind::map) {
    choice.architecture =
        value_or_problems(read_hf_config(*config), config->where, problems);  // the keys of a config.json, written in place
  } else if (given == 1 && config) {
    if (const auto tree = read_named_file(*config, folder, FileFormat::json, problems))
      choice.architecture = value_or_problems(architecture_of(tree), config->where, problems);
  }
  if (given == 1 && name) choice.architecture = read_preset(*name, problems);
  if (given == 1 && layers) choice.architecture = value_or_problems(read_layers(*layers), layers->where, problems);
  if (given == 1 && size) {
    if (const auto count = read_count(*size, problems))
      choice.architecture = value_or_problems(model_of_size(*count), size->where, problems);
  }
  if (const ConfigNode* quantization = reader.find("quantization"); quantization && choice.architecture) {
    const auto how = as_text(*quantization, problems);
    choice.architecture = how ? value_or_problems(quantised(choice.architecture, *how), quantization->where, problems) : nullptr;
  }
  if (const ConfigNode* trainable = reader.find("trainable")) choice.trainable = read_trainable(*trainable, problems);
  reader.finish();
  return choice;
}

}  // namespace shardsim
