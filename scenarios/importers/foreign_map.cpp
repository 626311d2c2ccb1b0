// SPDX-License-Identifier: Apache-2.0
#include "scenarios/importers/foreign_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace shardsim {

bool is_auto(const ConfigNode* node) { return node != nullptr && node->kind == ConfigNode::Kind::scalar && lower(node->text) == "auto"; }

std::optional<double> real_number(const ConfigNode* node) {
  if (node == nullptr || node->kind != ConfigNode::Kind::scalar) return std::nullopt;
  std::string_view text = node->text;
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> whole_number(const ConfigNode* node) {
  const auto value = real_number(node);
  constexpr double exact = 9007199254740992.0;  // 2^53: every whole double below is exact
  if (!value || std::abs(*value) > exact || std::trunc(*value) != *value) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

std::optional<bool> boolean_word(std::string_view text) {
  const std::string word = lower(text);
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  return std::nullopt;
}

std::string dtype_by_name(std::string_view text) {
  std::string word = lower(text);
  for (const std::string_view prefix : {"torch.", "amp_", "pure_"})
    if (word.starts_with(prefix)) word.erase(0, prefix.size());
  if (word == "bf16" || word == "bfloat16" || word == "bf16-mixed" || word == "bf16-true") return "bf16";
  if (word == "fp16" || word == "float16" || word == "half" || word == "f16" || word == "16") return "fp16";
  if (word == "fp32" || word == "float32" || word == "float" || word == "f32" || word == "32" || word == "full") return "fp32";
  return {};
}

ForeignMap::ForeignMap(const ConfigNode* node, std::string path, ScenarioDraft& draft)
    : node_(node != nullptr && node->kind == ConfigNode::Kind::map ? node : nullptr), path_(std::move(path)), draft_(draft) {
  if (node != nullptr && node_ == nullptr && node->kind != ConfigNode::Kind::null)
    draft_.problem(node->where, fmt::format("'{}' must be a map of keys and values", path_));
}

const ConfigNode* ForeignMap::take(const Keys& keys) {
  const ConfigNode* first = nullptr;
  for (const std::string_view key : keys) {
    taken_.emplace_back(key);
    const ConfigNode* found = node_ == nullptr ? nullptr : node_->find(key);
    if (found != nullptr && found->kind != ConfigNode::Kind::null && first == nullptr) first = found;
  }
  return first;
}

ForeignMap ForeignMap::section(const Keys& keys) {
  const ConfigNode* node = take(keys);
  return {node, source(keys), draft_};
}

std::string ForeignMap::source(const Keys& keys) const {
  for (const std::string_view key : keys)
    if (node_ != nullptr && node_->find(key) != nullptr) return full(key);
  return full(*keys.begin());
}

std::string ForeignMap::full(std::string_view key) const { return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key); }

void ForeignMap::add_problem(const ConfigNode& node, std::string_view expected, std::vector<std::string> notes) {
  const std::string got = node.kind == ConfigNode::Kind::scalar ? in_quotes(node.text)
                          : node.kind == ConfigNode::Kind::list ? "a list"
                                                                : "a map";
  draft_.problem(node.where, fmt::format("expected {}, got {}", expected, got), std::move(notes));
}

const ConfigNode* ForeignMap::single(const Keys& keys, std::string_view expected) {
  const ConfigNode* node = take(keys);
  if (node == nullptr || is_auto(node)) return nullptr;
  if (node->kind == ConfigNode::Kind::scalar) return node;
  add_problem(*node, expected);
  return nullptr;
}

std::optional<std::int64_t> ForeignMap::whole(const Keys& keys, std::int64_t min, std::int64_t max) {
  const ConfigNode* node = single(keys, "a whole number");
  if (node == nullptr) return std::nullopt;
  const auto value = whole_number(node);
  if (value && *value >= min && *value <= max) return value;
  add_problem(*node,
              value && *value > max ? fmt::format("a whole number of at most {}", max) : fmt::format("a whole number of at least {}", min));
  return std::nullopt;
}

std::optional<double> ForeignMap::real(const Keys& keys, double min, double max) {
  const ConfigNode* node = single(keys, "a number");
  if (node == nullptr) return std::nullopt;
  const auto value = real_number(node);
  if (value && *value >= min && *value <= max) return value;
  add_problem(*node, "a number");
  return std::nullopt;
}

std::optional<bool> ForeignMap::flag(const Keys& keys) {
  const ConfigNode* node = single(keys, "true or false");
  if (node == nullptr) return std::nullopt;
  const auto value = boolean_word(node->text);
  if (!value) add_problem(*node, "true or false");
  return value;
}

std::optional<std::string> ForeignMap::word(const Keys& keys) {
  const ConfigNode* node = single(keys, "a word");
  return node == nullptr ? std::nullopt : std::optional(node->text);
}

std::optional<std::string> ForeignMap::choice(const Keys& keys, std::initializer_list<std::string_view> allowed) {
  const ConfigNode* node = single(keys, "a word");
  if (node == nullptr) return std::nullopt;
  const std::string wanted = lower(node->text);
  std::vector<std::string> known;
  for (const std::string_view word : allowed) {
    if (lower(word) == wanted) return std::string(word);
    known.emplace_back(word);
  }
  add_problem(*node, "one of the words below", notes_for_unknown(node->text, known));
  return std::nullopt;
}

std::vector<std::string> ForeignMap::words(const Keys& keys) {
  const ConfigNode* node = take(keys);
  if (node == nullptr) return {};
  if (node->kind == ConfigNode::Kind::scalar) return {node->text};
  std::vector<std::string> list;
  if (node->kind != ConfigNode::Kind::list) add_problem(*node, "a list of words");
  for (const ConfigNode& item : node->items) {
    if (item.kind == ConfigNode::Kind::scalar) {
      list.push_back(item.text);
    } else {
      add_problem(item, "a word");
    }
  }
  return list;
}

std::optional<std::string> ForeignMap::dtype(const Keys& keys) {
  const ConfigNode* node = single(keys, "a dtype");
  if (node == nullptr) return std::nullopt;
  std::string name = dtype_by_name(node->text);
  if (!name.empty()) return name;
  add_problem(*node, "a dtype", {"allowed: float32, bfloat16, float16 and their short names"});
  return std::nullopt;
}

void ForeignMap::without_effect(const std::vector<std::string_view>& keys, std::string_view why) {
  for (const std::string_view key : keys) {
    taken_.emplace_back(key);
    if (node_ == nullptr) continue;
    for (const auto& entry : node_->entries)
      if (entry.key == key) draft_.ignore(full(key), entry.where, std::string(why), Effect::none);
  }
}

void ForeignMap::all_without_effect(std::string_view why) {
  if (node_ == nullptr) return;
  for (const auto& entry : node_->entries)
    if (std::find(taken_.begin(), taken_.end(), entry.key) == taken_.end()) without_effect({entry.key}, why);
}

const ConfigNode* ForeignMap::effective(std::string_view key, std::initializer_list<std::string_view> off) {
  const ConfigNode* value = take(key);
  if (value == nullptr) return nullptr;
  if (value->kind != ConfigNode::Kind::scalar) {
    const bool empty = value->items.empty() && value->entries.empty();
    const ConfigNode* enabled = value->find("enabled");
    return empty || (enabled != nullptr && boolean_word(enabled->text) == false) ? nullptr : value;
  }
  const std::string word = lower(value->text);
  const auto is = [&](std::string_view other) { return word == lower(other); };
  if (boolean_word(word) == false || is("none") || is("null") || is("") || std::any_of(off.begin(), off.end(), is)) return nullptr;
  return value;
}

void ForeignMap::not_modelled(std::string_view key, std::string why, std::initializer_list<std::string_view> off) {
  const ConfigNode* value = effective(key, off);
  if (value != nullptr) return draft_.ignore(full(key), value->where, std::move(why), Effect::changes);
  if (const ConfigNode* there = take(key)) draft_.ignore(full(key), there->where, "off", Effect::none);
}

void ForeignMap::refuse(std::string_view key, const std::string& why, std::initializer_list<std::string_view> off) {
  const ConfigNode* value = effective(key, off);
  if (value != nullptr) return draft_.problem(value->where, fmt::format("{}: {}", full(key), why));
  if (const ConfigNode* there = take(key)) draft_.ignore(full(key), there->where, "off", Effect::none);
}

void ForeignMap::rest_as_options() {
  if (node_ == nullptr) return;
  for (const auto& entry : node_->entries) {
    if (std::find(taken_.begin(), taken_.end(), entry.key) != taken_.end() || entry.value.kind == ConfigNode::Kind::null) continue;
    if (draft_.option(entry.key, entry.value, full(entry.key))) taken_.push_back(entry.key);
  }
}

void ForeignMap::finish() {
  if (node_ == nullptr) return;
  for (const auto& entry : node_->entries)
    if (std::find(taken_.begin(), taken_.end(), entry.key) == taken_.end())
      draft_.ignore(full(entry.key), entry.where, "shardsim does not know this key: assumed to change nothing", Effect::unknown);
}

}  // namespace shardsim
