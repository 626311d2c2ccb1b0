// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "scenarios/importers/foreign_map.hpp"
#include "scenarios/importers/import_summary.hpp"
#include "scenarios/reader/scenario.hpp"

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
  std::optional<std::string> text{};
  std::string wrong{};     ///< what was expected
  std::string left_out{};  ///< why a value that the library accepts is not taken
  std::vector<std::string> notes{};
};

OptionText word_text(const OptionSpec& spec, std::string_view value) {
  if (spec.words.empty()) return {.text = yaml_scalar(value)};
  const std::string wanted = lower(value);
  for (const auto& word : spec.words)
    if (lower(word) == wanted || (lower(word) == "none" && wanted == "no_prefetch")) return {.text = word};
  return {.wrong = fmt::format("a value of {}", spec.name), .notes = notes_for_unknown(value, spec.words)};
}

OptionText number_text(const OptionSpec& spec, const ConfigNode& value) {
  const auto number = real_number(&value);
  if (!number) return {.wrong = "a number"};
  const auto whole = whole_number(&value);
  if (spec.kind == OptionKind::integer && !whole) return {.wrong = "a whole number"};
  if (*number < spec.minimum)
    return {.left_out =
                fmt::format("{} is below {}, the least that is modelled: the library's default is taken", value.text, spec.minimum)};
  return {.text = whole ? std::to_string(*whole) : fmt::format("{}", *number)};
}

OptionText option_text(const OptionSpec& spec, const ConfigNode& value) {
  if (value.kind == ConfigNode::Kind::list && spec.kind == OptionKind::list) {
    std::string items;
    for (const auto& item : value.items) items += (items.empty() ? "" : ", ") + yaml_scalar(item.text);
    return {.text = "[" + items + "]"};
  }
  if (value.kind != ConfigNode::Kind::scalar) return {.wrong = "a single value"};
  switch (spec.kind) {
    case OptionKind::boolean: {
      const auto flag = boolean_word(value.text);
      return flag ? OptionText{.text = *flag ? "true" : "false"} : OptionText{.wrong = "true or false"};
    }
    case OptionKind::integer:
    case OptionKind::number:
      return number_text(spec, value);
    case OptionKind::word:
      return word_text(spec, value.text);
    case OptionKind::size:
    case OptionKind::list:
      return {.text = yaml_scalar(value.text)};
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

bool ScenarioDraft::has_option(std::string_view name) const { return find_option_by_any_name(strategy_name_, name) != nullptr; }

bool ScenarioDraft::option(std::string_view name, const ConfigNode& value, std::string_view written_as) {
  const OptionSpec* spec = find_option_by_any_name(strategy_name_, name);
  if (spec == nullptr) return false;
  auto text = option_text(*spec, value);
  if (text.text) {
    put(strategy_, spec->name, std::move(*text.text), std::string(written_as));
  } else if (!text.left_out.empty()) {
    ignore(std::string(written_as), value.where, std::move(text.left_out), Effect::changes);
  } else {
    problem(
        value.where,
        fmt::format("expected {}, got {}", text.wrong, value.kind == ConfigNode::Kind::scalar ? in_quotes(value.text) : "a list or map"),
        std::move(text.notes));
  }
  return true;
}

void ScenarioDraft::option(std::string_view name, std::string value, std::string comment) {
  if (find_option(strategy_name_, name) == nullptr)
    return note(fmt::format("{} has no option {}: {} is left out", strategy_name_, name, value));
  put(strategy_, std::string(name), std::move(value), std::move(comment));
}

void ScenarioDraft::ignore(std::string key, Where where, std::string why, Effect effect) {
  ignored_.push_back({std::move(key), std::move(where), std::move(why), effect});
}

bool ScenarioDraft::has_training(std::string_view key) const {
  return std::any_of(training_.begin(), training_.end(), [&](const DraftLine& line) { return line.key == key; });
}

std::string ScenarioDraft::yaml() const {
  std::string out = fmt::format("# From {}.\n", comment_text(origin));
  for (const auto& note : notes_) out += fmt::format("# Assumed: {}.\n", comment_text(note));
  append_section(out, "model", model_);
  append_section(out, "cluster", cluster_);
  append_section(out, "training", training_);
  append_section(out, "strategy", strategy_);
  for (const std::string& line : account_of(ignored_)) out += fmt::format("# {}\n", comment_text(line));
  return out;
}

Result<Imported> ScenarioDraft::finish(const ImportOptions& options) && {
  const auto place = [](const IgnoredKey& key) { return std::pair(key.where.line, key.where.column); };
  std::stable_sort(ignored_.begin(), ignored_.end(), [&](const IgnoredKey& a, const IgnoredKey& b) { return place(a) < place(b); });
  if (!problems_.empty()) return tl::unexpected(std::move(problems_));
  Imported imported{yaml(), std::move(ignored_), std::move(notes_), {}};
  // What is written must be a scenario: read as a user's would be before anybody sees it.
  const std::string name = origin.substr(origin.find_last_of(' ') + 1);
  auto root = read_yaml({name, imported.yaml});
  if (!root) return tl::unexpected(root.error());
  const auto scenario = read_scenario(std::move(*root), name, options.output_folder);
  if (!scenario) return tl::unexpected(scenario.error());
  imported.summary = summary_of(imported, origin, *scenario);
  return imported;
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
