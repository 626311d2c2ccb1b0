// SPDX-License-Identifier: Apache-2.0
// Values that a scenario knows better than the file it names.
#include <algorithm>

#include "scenarios/reader/reading.hpp"

namespace shardsim {

ConfigNode empty_map(const Where& where) {
  ConfigNode map;
  map.kind = ConfigNode::Kind::map;
  map.where = where;
  return map;
}

namespace {

Entry& entry_of(ConfigNode& map, const Entry& like) {
  const auto found = std::find_if(map.entries.begin(), map.entries.end(), [&](const Entry& entry) { return entry.key == like.key; });
  if (found != map.entries.end()) return *found;
  ConfigNode empty;
  empty.where = like.value.where;
  map.entries.push_back({like.key, like.where, std::move(empty)});
  return map.entries.back();
}

}  // namespace

/// Puts an entry into a map: maps merge, anything else is replaced. `changed` collects the dotted keys of what was replaced.
void merge_entry(ConfigNode& map, const Entry& override, const std::string& path, std::vector<std::string>& changed) {
  map.kind = ConfigNode::Kind::map;
  Entry& entry = entry_of(map, override);
  entry.where = override.where;
  const std::string key = path.empty() ? override.key : path + "." + override.key;
  if (override.value.kind == ConfigNode::Kind::map) {
    if (entry.value.kind != ConfigNode::Kind::map) entry.value = empty_map(override.value.where);
    for (const Entry& inner : override.value.entries) merge_entry(entry.value, inner, key, changed);
  } else {
    entry.value = override.value;
    changed.push_back(key);
  }
}

}  // namespace shardsim
