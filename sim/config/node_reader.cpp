// SPDX-License-Identifier: Apache-2.0
// MapReader: one map of the user, key by key.
#include <fmt/format.h>

#include <algorithm>

#include "sim/config/node.hpp"

namespace shardsim {

MapReader::MapReader(const ConfigNode& node, Problems& problems, std::string what)
    : node_(node), problems_(problems), what_(std::move(what)) {
  if (node.kind == ConfigNode::Kind::map) return;
  const bool nothing = node.kind == ConfigNode::Kind::null;
  problems_.add(node.where, fmt::format("{} must be a map of keys and values, not {}", what_,
                                        nothing                               ? "empty"
                                        : node.kind == ConfigNode::Kind::list ? "a list"
                                                                              : "a single value"));
}

void MapReader::ignore(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.emplace_back(key);
}

const ConfigNode* MapReader::find(std::string_view key) {
  ignore(key);
  const ConfigNode* value = node_.find(key);
  return value && value->kind != ConfigNode::Kind::null ? value : nullptr;
}

bool MapReader::has(std::string_view key) { return find(key) != nullptr; }

const ConfigNode* MapReader::require(std::string_view key) {
  const ConfigNode* value = find(key);
  if (!value && node_.kind == ConfigNode::Kind::map) problems_.add(node_.where, fmt::format("{} needs a key '{}'", what_, key));
  return value;
}

std::string MapReader::text(std::string_view key, std::string fallback) {
  const ConfigNode* value = find(key);
  return value ? as_text(*value, problems_).value_or(std::move(fallback)) : fallback;
}

bool MapReader::boolean(std::string_view key, bool fallback) {
  const ConfigNode* value = find(key);
  return value ? as_boolean(*value, problems_).value_or(fallback) : fallback;
}

std::int64_t MapReader::integer(std::string_view key, std::int64_t fallback, std::int64_t min, std::int64_t max) {
  const ConfigNode* value = find(key);
  return value ? as_integer(*value, problems_, min, max).value_or(fallback) : fallback;
}

double MapReader::number(std::string_view key, double fallback, double min, double max) {
  const ConfigNode* value = find(key);
  return value ? as_number(*value, problems_, min, max).value_or(fallback) : fallback;
}

Bytes MapReader::bytes(std::string_view key, Bytes fallback) {
  const ConfigNode* value = find(key);
  return value ? as_bytes(*value, problems_).value_or(fallback) : fallback;
}

ByteRate MapReader::byte_rate(std::string_view key, ByteRate fallback) {
  const ConfigNode* value = find(key);
  return value ? as_byte_rate(*value, problems_).value_or(fallback) : fallback;
}

FlopRate MapReader::flop_rate(std::string_view key, FlopRate fallback) {
  const ConfigNode* value = find(key);
  return value ? as_flop_rate(*value, problems_).value_or(fallback) : fallback;
}

Seconds MapReader::seconds(std::string_view key, Seconds fallback) {
  const ConfigNode* value = find(key);
  return value ? as_seconds(*value, problems_).value_or(fallback) : fallback;
}

std::string MapReader::choice(std::string_view key, const std::vector<std::string>& allowed, std::string fallback) {
  const ConfigNode* value = find(key);
  if (!value) return fallback;
  if (value->kind == ConfigNode::Kind::scalar && std::find(allowed.begin(), allowed.end(), value->text) != allowed.end())
    return value->text;
  const std::string got = value->kind == ConfigNode::Kind::scalar ? in_quotes(value->text)
                          : value->kind == ConfigNode::Kind::list ? "a list"
                                                                  : "a map";
  problems_.add(value->where, fmt::format("{} cannot be {}", key, got), notes_for_unknown(value->text, allowed));
  return fallback;
}

void MapReader::finish() {
  for (const Entry& entry : node_.entries)
    if (std::find(known_.begin(), known_.end(), entry.key) == known_.end())
      problems_.add(entry.where, fmt::format("unknown key {} in {}", in_quotes(entry.key), what_), notes_for_unknown(entry.key, known_));
}

}  // namespace shardsim
