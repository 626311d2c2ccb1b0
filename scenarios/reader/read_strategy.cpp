// SPDX-License-Identifier: Apache-2.0
#include "scenarios/reader/reading.hpp"

namespace shardsim {
namespace {

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const StrategyInfo& info : strategies()) names.push_back(info.name);
  return names;
}

/// Versions outside what is modelled are simulated as the nearest one, and that is said.
std::string read_version(MapReader& reader) {
  const ConfigNode* node = reader.find("version");
  if (!node) return {};
  if (node->kind == ConfigNode::Kind::scalar && is_version(node->text)) return node->text;
  reader.problems().add(node->where, "version is not numbers with dots between them", {"for example: version: \"2.15\""});
  return {};
}

}  // namespace

StrategyChoice read_strategy(const ConfigNode& block, Problems& problems) {
  StrategyChoice choice;
  const ConfigNode* name = block.find("name");
  const std::string word = name && name->kind == ConfigNode::Kind::scalar ? name->text : "";
  const StrategyInfo* info = find_strategy(word);

  MapReader reader(block, problems, info ? "strategy " + word : "strategy");
  if (reader.require("name")) choice.name = reader.choice("name", strategy_names(), choice.name);
  if (reader.choice("semantics", {"framework", "textbook"}, "framework") == "textbook") choice.semantics = Semantics::textbook;
  choice.version = read_version(reader);
  if (!info) return choice;  // which options there are depends on the strategy
  choice.options = read_options(reader, info->options);
  reader.finish();
  return choice;
}

}  // namespace shardsim
