// SPDX-License-Identifier: Apache-2.0
// Trees put together from others.
#include "sim/config/node_edit.hpp"

#include <algorithm>

namespace shardsim {
namespace {

auto entry_at(ConfigNode& map, std::string_view key) {
  return std::find_if(map.entries.begin(), map.entries.end(), [&](const Entry& entry) { return entry.key == key; });
}

void become_map(ConfigNode& node, const Where& where) {
  if (node.kind == ConfigNode::Kind::map) return;
  node = ConfigNode{};
  node.kind = ConfigNode::Kind::map;
  node.where = where;
}

}  // namespace

void put(ConfigNode& root, std::string_view path, const ConfigNode& value) {
  ConfigNode* node = &root;
  while (!path.empty()) {
    const std::size_t dot = path.find('.');
    const std::string_view word = path.substr(0, dot);
    path = dot == std::string_view::npos ? std::string_view{} : path.substr(dot + 1);
    become_map(*node, value.where);
    const auto found = entry_at(*node, word);
    if (found == node->entries.end()) {
      node->entries.push_back({std::string(word), value.where, ConfigNode{}});
      node = &node->entries.back().value;
    } else {
      found->where = value.where;
      node = &found->value;
    }
  }
  *node = value;
}

void lay_over(ConfigNode& base, const ConfigNode& over) {
  if (over.kind != ConfigNode::Kind::map) {
    base = over;
    return;
  }
  become_map(base, over.where);
  for (const Entry& entry : over.entries) {
    const auto found = entry_at(base, entry.key);
    if (entry.value.kind == ConfigNode::Kind::null) {
      if (found != base.entries.end()) base.entries.erase(found);
    } else if (found == base.entries.end()) {
      base.entries.push_back(entry);
    } else {
      found->where = entry.where;
      lay_over(found->value, entry.value);
    }
  }
}

std::optional<ConfigNode> take(ConfigNode& map, std::string_view key) {
  const auto found = entry_at(map, key);
  if (found == map.entries.end()) return std::nullopt;
  ConfigNode value = std::move(found->value);
  map.entries.erase(found);
  return value;
}

}  // namespace shardsim
