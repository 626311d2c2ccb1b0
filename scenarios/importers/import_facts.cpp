// SPDX-License-Identifier: Apache-2.0
// What foreign configurations leave open: the model's width, the cluster, names of dtypes and optimizers.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "scenarios/importers/import_draft.hpp"

namespace shardsim {
namespace {

constexpr std::string_view default_model = "llama-3-8b";

/// "meta-llama/Meta-Llama-3-8B-Instruct" and "llama-3-8b" come to the same.
std::string model_key(std::string_view name) {
  std::string key;
  for (const char c : lower(name.substr(name.find_last_of('/') + 1)))
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) key += c;
  for (const std::string_view suffix : {"hf", "instruct", "chat", "base", "it"})
    if (key.size() > suffix.size() && key.ends_with(suffix)) key.resize(key.size() - suffix.size());
  if (key.starts_with("meta")) key.erase(0, 4);
  return key;
}

std::optional<std::string> preset_for(std::string_view name) {
  for (const auto& known : preset_names())
    if (known == name) return known;
  for (const auto& known : preset_names())
    if (model_key(known) == model_key(name)) return known;
  return std::nullopt;
}

Result<std::shared_ptr<const Architecture>> read_config_file(const std::string& path) {
  return read_source(path).and_then([](const Source& source) { return read_json(source); }).and_then([](const ConfigNode& config) {
    return read_hf_config(config);
  });
}

/// `path` as seen from the folder of the scenario.
std::string path_from(const std::string& folder, const std::string& path) {
  std::error_code error;
  const auto relative = std::filesystem::relative(path, folder.empty() ? "." : folder, error);
  return error || relative.empty() ? std::filesystem::absolute(path, error).string() : relative.string();
}

}  // namespace

Result<ModelFacts> model_facts(const std::shared_ptr<const Architecture>& architecture) {
  Problems last;
  Training training;
  // Sequences longer than the learned positions are refused, so shorter ones are tried.
  for (std::int64_t length = 2048; length >= 128; length /= 2) {
    training.sequence_length = length;
    const auto model = build_model(architecture, training);
    if (!model) {
      last = model.error();
      continue;
    }
    for (const auto& type : (*model)->types) {
      if (!type.block) continue;
      for (const auto& tensor : type.tensors)
        if (tensor.producer == -1) return ModelFacts{tensor.elements.value() / (*model)->tokens_per_micro_batch.value(), length};
    }
    return ModelFacts{0, length};
  }
  return tl::unexpected(last);
}

Result<ModelFacts> describe_model(ScenarioDraft& draft, const ImportOptions& options) {
  if (options.model.empty()) {
    draft.model("preset", std::string(default_model), "not in the file: name yours, or import with --model");
    draft.note(fmt::format("the model is {} (the file names none; see --model)", default_model));
    return preset(std::string(default_model)).and_then(model_facts);
  }
  if (const auto known = preset_for(options.model)) {
    draft.model("preset", *known);
    return preset(*known).and_then(model_facts);
  }
  std::error_code error;
  if (!std::filesystem::exists(options.model, error)) {
    Problems problems;
    const auto source = std::make_shared<const Source>(Source{"--model", options.model});
    problems.add({source, 1, 1}, fmt::format("'{}' is neither a preset nor a file", options.model),
                 notes_for_unknown(options.model, preset_names()));
    return tl::unexpected(problems);
  }
  draft.model("hf_config", yaml_scalar(path_from(options.output_folder, options.model)));
  return read_config_file(options.model).and_then(model_facts);
}

void describe_cluster(ScenarioDraft& draft, const ImportOptions& options, std::int64_t nodes, std::int64_t gpus_per_node,
                      std::string comment) {
  draft.cluster("profile", yaml_scalar(options.cluster), "which machine is not in the file");
  const bool said = nodes > 0;
  if (options.nodes > 0) nodes = options.nodes;
  if (options.gpus_per_node > 0) gpus_per_node = options.gpus_per_node;
  if (nodes <= 0) nodes = 1;
  if (gpus_per_node <= 0) gpus_per_node = 8;
  // Shipped nodes hold eight GPUs; a file for larger ones is spread over several.
  for (std::int64_t per_node = 8; gpus_per_node > 8; --per_node) {
    if (gpus_per_node % per_node != 0) continue;
    nodes *= gpus_per_node / per_node;
    gpus_per_node = per_node;
    comment = "more than eight GPUs a node in the file: spread over nodes of eight";
  }
  if (!said && comment.empty() && options.nodes == 0) comment = "not in the file";
  draft.cluster("nodes", std::to_string(nodes), comment);
  draft.cluster("gpus_per_node", std::to_string(gpus_per_node), comment);
}

std::string precision_map(std::string_view parameters, std::string_view gradients, std::string_view reduce, std::string_view master) {
  std::string out = fmt::format("{{parameters: {}, gradients: {}", parameters, gradients);
  if (!reduce.empty()) out += fmt::format(", reduce: {}", reduce);
  return out + fmt::format(", master: {}}}", master);
}

OptimizerName optimizer_name(std::string_view foreign) {
  std::string key = lower(foreign);
  for (const std::string_view prefix : {"decoupled_", "fused", "deepspeedcpu"})
    if (key.starts_with(prefix)) key.erase(0, prefix.size());
  if (key == "adamw" || key.starts_with("adamw_torch")) return {"adamw", {}};
  if (key == "adam") return {"adam", {}};
  if (key == "adamw_8bit" || key == "adamw8bit" || key == "adamw_bnb_8bit") return {"adamw_8bit", {}};
  if (key == "sgd") return {"sgd", {}};
  if (key == "lion" || key == "lionw") return {"lion", {}};
  if (key == "adafactor") return {"adafactor", {}};
  if (key == "muon") return {"muon", {}};
  if (key == "lamb" || key == "onebitlamb") return {"adamw", "LAMB holds the same two moments; its trust ratios are not modelled"};
  if (key == "onebitadam" || key == "zerooneadam") return {"adam", "compressed communication is not modelled"};
  return {};
}

}  // namespace shardsim
