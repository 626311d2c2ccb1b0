// SPDX-License-Identifier: Apache-2.0
#include "scenarios/importers/import_draft.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace shardsim {
namespace {

const OptionSpec* find_option(std::string_view strategy, std::string_view name) {
  const StrategyInfo* info = find_strategy(strategy);
  if (info == nullptr) return nullptr;
  const auto found = std::find_if(info->options.begin(), info->options.end(), [&](const OptionSpec& spec) { return spec.name == name; });
  return found == info->options.end() ? nullptr : &*found;
}

/// DeepSpeed's older files leave out the prefix of stage 3's options.
const OptionSpec* find_option_by_any_name(std::string_view strategy, std::string_view name) {
  if (const OptionSpec* spec = find_option(strategy, name)) return spec;
  return find_option(strategy, "stage3_" + std::string(name));
}

struct OptionText {
  std::optional<std::string> text;
  std::string refused;  ///< why there is none
};

OptionText word_text(const OptionSpec& spec, std::string_view value) {
  if (spec.words.empty()) return {yaml_scalar(value), {}};
  const std::string wanted = lower(value);
  for (const auto& word : spec.words)
    if (lower(word) == wanted || (lower(word) == "none" && wanted == "no_prefetch")) return {word, {}};
  return {std::nullopt, fmt::format("the strategy has no value '{}' for it", value)};
}

OptionText number_text(const OptionSpec& spec, const ConfigNode& value) {
  const auto number = real_number(&value);
  if (!number) return {std::nullopt, "not a number"};
  if (*number < spec.minimum) return {std::nullopt, fmt::format("below {}, the least that is modelled", spec.minimum)};
  if (spec.kind == OptionKind::number) return {fmt::format("{}", *number), {}};
  const auto whole = whole_number(&value);
  return whole ? OptionText{std::to_string(*whole), {}} : OptionText{std::nullopt, "not a whole number"};
}

OptionText option_text(const OptionSpec& spec, const ConfigNode& value) {
  if (value.kind == ConfigNode::Kind::list && spec.kind == OptionKind::list) {
    std::string items;
    for (const auto& item : value.items) items += (items.empty() ? "" : ", ") + yaml_scalar(item.text);
    return {"[" + items + "]", {}};
  }
  if (value.kind != ConfigNode::Kind::scalar) return {std::nullopt, "not a single value"};
  switch (spec.kind) {
    case OptionKind::boolean:
      return {truthy(&value) ? "true" : "false", {}};
    case OptionKind::integer:
    case OptionKind::number:
      return number_text(spec, value);
    case OptionKind::word:
      return word_text(spec, value.text);
    case OptionKind::size:
    case OptionKind::list:
      return {yaml_scalar(value.text), {}};
  }
  return {};
}

/// One line of a comment: control characters would end it.
std::string comment_text(std::string_view text) {
  std::string out;
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return out;
}

void append_section(std::string& out, std::string_view name, const std::vector<DraftLine>& lines) {
  if (lines.empty()) return;
  out += fmt::format("{}:\n", name);
  for (const auto& line : lines) {
    const std::string text = fmt::format("  {}: {}", line.key, line.value);
    out += line.comment.empty() ? text + "\n" : fmt::format("{:<52} # {}\n", text, comment_text(line.comment));
  }
}

}  // namespace

void ScenarioDraft::put(std::vector<DraftLine>& section, std::string key, std::string value, std::string comment) {
  const auto found = std::find_if(section.begin(), section.end(), [&](const DraftLine& line) { return line.key == key; });
  if (found == section.end()) {
    section.push_back({std::move(key), std::move(value), std::move(comment)});
  } else {
    *found = {std::move(key), std::move(value), std::move(comment)};
  }
}

void ScenarioDraft::strategy(std::string name, std::string comment) {
  strategy_name_ = name;
  put(strategy_, "name", std::move(name), std::move(comment));
}

void ScenarioDraft::option(std::string_view name, const ConfigNode& value, std::string_view written_as) {
  const OptionSpec* spec = find_option_by_any_name(strategy_name_, name);
  if (spec == nullptr) return ignore(std::string(written_as), value.where, fmt::format("{} has no such option here", strategy_name_));
  auto text = option_text(*spec, value);
  if (!text.text) return ignore(std::string(written_as), value.where, std::move(text.refused));
  put(strategy_, spec->name, std::move(*text.text), {});
}

void ScenarioDraft::option(std::string_view name, std::string value, std::string comment) {
  if (find_option(strategy_name_, name) == nullptr)
    return note(fmt::format("{} has no option {}: {} left out", strategy_name_, name, value));
  put(strategy_, std::string(name), std::move(value), std::move(comment));
}

void ScenarioDraft::ignore(std::string key, Where where, std::string why) {
  ignored_.push_back({std::move(key), std::move(where), std::move(why)});
}

std::string ScenarioDraft::yaml() const {
  std::string out = fmt::format("# From {}.\n", comment_text(origin));
  for (const auto& note : notes_) out += fmt::format("# Assumed: {}.\n", comment_text(note));
  append_section(out, "model", model_);
  append_section(out, "cluster", cluster_);
  append_section(out, "training", training_);
  append_section(out, "strategy", strategy_);
  if (!ignored_.empty()) out += "\n# Keys of the file without effect here:\n";
  for (const auto& key : ignored_) out += fmt::format("#   {}: {}\n", comment_text(key.key), comment_text(key.why));
  return out;
}

Imported ScenarioDraft::finish() && {
  const auto place = [](const IgnoredKey& key) { return std::pair(key.where.line, key.where.column); };
  std::stable_sort(ignored_.begin(), ignored_.end(), [&](const IgnoredKey& a, const IgnoredKey& b) { return place(a) < place(b); });
  std::string text = yaml();
  return {std::move(text), std::move(ignored_), std::move(notes_)};
}

ForeignMap::ForeignMap(const ConfigNode* node, std::string path, ScenarioDraft& draft)
    : node_(node != nullptr && node->kind == ConfigNode::Kind::map ? node : nullptr), path_(std::move(path)), draft_(draft) {}

const ConfigNode* ForeignMap::take(std::string_view key) {
  taken_.emplace_back(key);
  const ConfigNode* found = node_ == nullptr ? nullptr : node_->find(key);
  return found == nullptr || found->kind == ConfigNode::Kind::null ? nullptr : found;
}

const ConfigNode* ForeignMap::take_any(std::initializer_list<std::string_view> keys) {
  const ConfigNode* first = nullptr;
  for (const auto key : keys) {
    const ConfigNode* found = take(key);
    if (first == nullptr) first = found;
  }
  return first;
}

std::string ForeignMap::full(std::string_view key) const { return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key); }

void ForeignMap::ignore(std::string_view key, std::string why) {
  taken_.emplace_back(key);
  if (node_ == nullptr) return;
  for (const auto& entry : node_->entries)
    if (entry.key == key) draft_.ignore(full(key), entry.where, why);
}

void ForeignMap::ignore_all(std::initializer_list<std::string_view> keys, std::string_view why) {
  for (const auto key : keys) ignore(key, std::string(why));
}

void ForeignMap::rest_as_options() {
  if (node_ == nullptr) return;
  for (const auto& entry : node_->entries) {
    if (std::find(taken_.begin(), taken_.end(), entry.key) != taken_.end() || entry.value.kind == ConfigNode::Kind::null) continue;
    taken_.push_back(entry.key);
    draft_.option(entry.key, entry.value, full(entry.key));
  }
}

void ForeignMap::finish(std::string_view why) {
  if (node_ == nullptr) return;
  for (const auto& entry : node_->entries)
    if (std::find(taken_.begin(), taken_.end(), entry.key) == taken_.end()) draft_.ignore(full(entry.key), entry.where, std::string(why));
}

bool is_auto(const ConfigNode* node) { return node != nullptr && node->kind == ConfigNode::Kind::scalar && lower(node->text) == "auto"; }

std::optional<double> real_number(const ConfigNode* node) {
  if (node == nullptr || node->kind != ConfigNode::Kind::scalar) return std::nullopt;
  double value = 0;
  const char* end = node->text.data() + node->text.size();
  const auto [stop, error] = std::from_chars(node->text.data(), end, value);
  if (error != std::errc{} || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> whole_number(const ConfigNode* node) {
  const auto value = real_number(node);
  constexpr double exact = 9007199254740992.0;  // 2^53: every whole double below is exact
  if (!value || std::abs(*value) > exact || std::trunc(*value) != *value) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

bool truthy(const ConfigNode* node) {
  if (node == nullptr || node->kind != ConfigNode::Kind::scalar) return false;
  const std::string word = lower(node->text);
  return word == "true" || word == "yes" || word == "on" || word == "1";
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

std::string yaml_scalar(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '/' ||
           c == '+';
  };
  if (!text.empty() && text.front() != '-' && std::all_of(text.begin(), text.end(), plain)) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20 || code == 0x7f) {
      out += fmt::format("\\x{:02x}", code);
    } else {
      out += c;
    }
  }
  return out + '"';
}

}  // namespace shardsim
