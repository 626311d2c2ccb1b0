// SPDX-License-Identifier: Apache-2.0
// The software of a scenario: a shipped stack by its name, a file, or one of both with values that the scenario knows better.
#include <algorithm>
#include <filesystem>

#include "scenarios/reader/reading.hpp"

namespace shardsim {
namespace {

namespace fs = std::filesystem;

bool is_file_name(std::string_view name) {
  return name.find('/') != std::string_view::npos || name.ends_with(".yaml") || name.ends_with(".yml");
}

/// The tree of the file that a stack's name leads to; a word is one of those shipped.
std::shared_ptr<const ConfigNode> stack_tree(const ConfigNode& name, const std::string& folder, Problems& problems) {
  const auto written = as_text(name, problems);
  if (!written) return nullptr;
  ConfigNode file = name;
  if (!is_file_name(*written)) {
    const std::vector<std::string> known = shipped_stacks();
    if (std::find(known.begin(), known.end(), *written) == known.end()) {
      std::vector<std::string> notes = notes_for_unknown(*written, known);
      notes.push_back("or a file: my-stack.yaml");
      problems.add(name.where, "there is no stack " + in_quotes(*written), std::move(notes));
      return nullptr;
    }
    file.text = shipped_folder() + "/stacks/" + *written + ".yaml";
  }
  return read_named_file(file, folder, FileFormat::yaml, problems);
}

/// `{base: torchtitan, host: {kernel: 12 us}}`.
ConfigNode overridden_stack(const ConfigNode& base, const ConfigNode& choice) {
  ConfigNode tree = base;
  std::vector<std::string> changed;
  for (const Entry& entry : choice.entries)
    if (entry.key != "base") merge_entry(tree, entry, "", changed);
  if (changed.empty()) return tree;
  ConfigNode origins = empty_map(choice.where);
  for (const std::string& key : changed) {
    ConfigNode text = empty_map(choice.where);
    text.kind = ConfigNode::Kind::scalar;
    text.quoted = true;
    text.text = "set by the scenario";
    origins.entries.push_back({key, choice.where, std::move(text)});
  }
  merge_entry(tree, {"origins", choice.where, std::move(origins)}, "", changed);
  return tree;
}

}  // namespace

std::vector<std::string> shipped_stacks() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(fs::path(shipped_folder()) / "stacks", error))
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

ConfigNode stack_node(const ConfigNode& root, const StrategyChoice& strategy) {
  const ConfigNode* training = root.find("training");
  const ConfigNode* written = training ? training->find("stack") : nullptr;
  const StrategyInfo* info = find_strategy(strategy.name);
  ConfigNode usual = empty_map(root.where);
  usual.kind = ConfigNode::Kind::scalar;
  usual.text = info ? info->stack : "torchtitan";
  if (!written || written->kind == ConfigNode::Kind::null) return usual;
  if (written->kind != ConfigNode::Kind::map || written->find("base")) return *written;
  ConfigNode choice = *written;  // single values over the usual stack
  choice.entries.push_back({"base", written->where, std::move(usual)});
  return choice;
}

std::shared_ptr<const Stack> read_stack_choice(const ConfigNode& node, const std::string& folder, Problems& problems) {
  const bool changes = node.kind == ConfigNode::Kind::map;
  const auto tree = stack_tree(changes ? *node.find("base") : node, folder, problems);
  if (!tree) return nullptr;
  const Result<Stack> stack = read_stack(changes ? overridden_stack(*tree, node) : *tree);
  if (!stack) {
    append_at(problems, stack.error(), node.where);
    return nullptr;
  }
  return std::make_shared<const Stack>(*stack);
}

}  // namespace shardsim
