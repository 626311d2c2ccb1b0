// SPDX-License-Identifier: Apache-2.0
// What foreign configurations leave open: the model's width, the cluster, names of dtypes and optimizers.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "models/families/architectures.hpp"
#include "scenarios/importers/foreign_map.hpp"

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

ModelFacts model_facts(ScenarioDraft& draft, const Result<std::shared_ptr<const Architecture>>& architecture) {
  if (!architecture) {
    draft.append(architecture.error());
    return {};
  }
  // 2048 tokens, or the largest power of two that the learned positions hold.
  const std::int64_t longest = longest_sequence(**architecture);
  std::int64_t length = 2048;
  while (longest > 0 && length > longest && length > 1) length /= 2;
  return {hidden_size(**architecture), length};
}

/// A preset, a config.json or a folder with one. False if it is none of these.
bool known_model(ScenarioDraft& draft, const ImportOptions& options, const std::string& name, std::string comment, ModelFacts& facts) {
  if (const auto known = preset_for(name)) {
    draft.model("preset", *known, std::move(comment));
    facts = model_facts(draft, preset(*known));
    return true;
  }
  std::error_code error;
  std::string path = name;
  if (std::filesystem::is_directory(path, error)) path = (std::filesystem::path(path) / "config.json").string();
  if (!std::filesystem::exists(path, error)) return false;
  draft.model("hf_config", yaml_scalar(path_from(options.output_folder, path)), std::move(comment));
  facts = model_facts(draft, read_config_file(path));
  return true;
}

}  // namespace

ModelFacts describe_model(ScenarioDraft& draft, const ImportOptions& options, const ConfigNode* named, std::string_view key) {
  ModelFacts facts;
  if (!options.model.empty()) {
    if (known_model(draft, options, options.model, "--model", facts)) return facts;
    const auto source = std::make_shared<const Source>(Source{"--model", options.model});
    draft.problem({source, 1, 1}, fmt::format("'{}' is neither a preset nor a file", options.model),
                  notes_for_unknown(options.model, preset_names()));
    return facts;
  }
  if (named != nullptr) {
    if (named->kind == ConfigNode::Kind::scalar && known_model(draft, options, named->text, std::string(key), facts)) return facts;
    draft.problem(named->where, fmt::format("no preset and no file for the model {}", in_quotes(named->text)),
                  {"give its config.json with --model", "'shardsim list models' names the presets"});
    return facts;
  }
  draft.note(fmt::format("the model is {} (the file names none: see --model)", default_model));
  draft.model("preset", std::string(default_model), "not in the file: name yours, or import with --model");
  return model_facts(draft, preset(std::string(default_model)));
}

std::int64_t describe_cluster(ScenarioDraft& draft, const ImportOptions& options, std::int64_t nodes, std::int64_t gpus_per_node,
                              std::string comment) {
  draft.cluster("profile", yaml_scalar(options.cluster), "which machine is not in the file");
  const bool said = nodes > 0 || gpus_per_node > 0;
  if (options.nodes > 0) nodes = options.nodes;
  if (options.gpus_per_node > 0) gpus_per_node = options.gpus_per_node;
  if (nodes <= 0) nodes = 1;
  if (gpus_per_node <= 0) gpus_per_node = 8;
  const bool given = options.nodes > 0 || options.gpus_per_node > 0;
  constexpr std::int64_t most = std::int64_t{1} << 24;
  if (nodes > most || gpus_per_node > most) {
    draft.problem({}, fmt::format("{} nodes of {} GPUs are more than are simulated", nodes, gpus_per_node));
    return 1;
  }
  // Shipped nodes hold eight GPUs; a file for larger ones is spread over several.
  for (std::int64_t per_node = 8; gpus_per_node > 8; --per_node) {
    if (gpus_per_node % per_node != 0) continue;
    nodes *= gpus_per_node / per_node;
    gpus_per_node = per_node;
    comment = "more than eight GPUs a node in the file: spread over nodes of eight";
  }
  if (given) comment = "--nodes, --gpus-per-node";
  if (!said && comment.empty()) {
    comment = "not in the file";
    draft.note("one node of eight GPUs (the file does not say how many: see --nodes and --gpus-per-node)");
  }
  draft.cluster("nodes", std::to_string(nodes), comment);
  draft.cluster("gpus_per_node", std::to_string(gpus_per_node), comment);
  return nodes * gpus_per_node;
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
  const auto dot = key.find_last_of('.');  // "torch.optim.AdamW", "deepspeed.ops.adam.FusedAdam"
  if (dot != std::string::npos) return optimizer_name(std::string_view(foreign).substr(dot + 1));
  if (key == "adamw" || key.starts_with("adamw_torch") || key == "adamw_hf" || key == "adamw_apex_fused" || key == "paged_adamw" ||
      key == "paged_adamw_32bit" || key == "skipstepadamw")
    return {"adamw", {}};
  if (key == "adam") return {"adam", {}};
  if (key == "adamw_8bit" || key == "adamw8bit" || key == "adamw_bnb_8bit" || key == "paged_adamw_8bit" || key == "pagedadamw8bit")
    return {"adamw_8bit", key.starts_with("paged") ? "paged: pages of its states may move to the host, which is not modelled" : ""};
  if (key == "sgd") return {"sgd", {}};
  if (key == "lion" || key == "lionw" || key == "lion_32bit") return {"lion", {}};
  if (key == "adafactor") return {"adafactor", {}};
  if (key == "muon") return {"muon", {}};
  if (key == "lamb" || key == "onebitlamb") return {"adamw", "LAMB holds the same two moments; its trust ratios are not modelled"};
  if (key == "onebitadam" || key == "zerooneadam") return {"adam", "compressed communication is not modelled"};
  return {};
}

}  // namespace shardsim
