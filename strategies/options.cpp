// SPDX-License-Identifier: Apache-2.0
#include "strategies/options.hpp"

#include <algorithm>
#include <cmath>

namespace shardsim {
namespace {

std::optional<Options::Value> read_word(const ConfigNode& node, const OptionSpec& spec, Problems& problems) {
  if (node.kind == ConfigNode::Kind::scalar && std::find(spec.words.begin(), spec.words.end(), node.text) != spec.words.end())
    return node.text;
  if (const auto text = as_text(node, problems))
    problems.add(node.where, spec.name + " cannot be " + in_quotes(*text), notes_for_unknown(*text, spec.words));
  return std::nullopt;
}

/// A list of words, or one word alone.
std::optional<Options::Value> read_list(const ConfigNode& node, Problems& problems) {
  std::vector<std::string> words;
  if (node.kind != ConfigNode::Kind::list) {
    const auto word = as_text(node, problems);
    return word ? std::optional<Options::Value>(std::vector<std::string>{*word}) : std::nullopt;
  }
  bool complete = true;
  for (const ConfigNode& item : node.items) {
    const auto word = as_text(item, problems);
    if (word) words.push_back(*word);
    complete = complete && word;
  }
  return complete ? std::optional<Options::Value>(std::move(words)) : std::nullopt;
}

template <class T>
std::optional<Options::Value> value_or_nothing(std::optional<T> value) {
  return value ? std::optional<Options::Value>(std::move(*value)) : std::nullopt;
}

std::optional<Options::Value> read_value(const ConfigNode& node, const OptionSpec& spec, Problems& problems) {
  // Beyond any model or machine; products of two of them stay in 64 bits where one is a count of ranks.
  constexpr std::int64_t most = std::int64_t{1} << 40;
  constexpr double largest = 1e12;
  switch (spec.kind) {
    case OptionKind::boolean:
      return value_or_nothing(as_boolean(node, problems));
    case OptionKind::integer:
      return value_or_nothing(as_integer(node, problems, static_cast<std::int64_t>(std::ceil(spec.minimum)), most));
    case OptionKind::number:
      return value_or_nothing(as_number(node, problems, spec.minimum, largest));
    case OptionKind::size:
      return value_or_nothing(as_bytes(node, problems));
    case OptionKind::word:
      return spec.words.empty() ? value_or_nothing(as_text(node, problems)) : read_word(node, spec, problems);
    case OptionKind::list:
      return read_list(node, problems);
  }
  return std::nullopt;
}

}  // namespace

Where Options::where(std::string_view name) const {
  const auto found = where_.find(std::string(name));
  return found == where_.end() ? Where{} : found->second;
}

Options read_options(MapReader& reader, const std::vector<OptionSpec>& specs) {
  Options options;
  for (const OptionSpec& spec : specs) {
    const ConfigNode* node = reader.find(spec.name);
    if (!node) continue;
    const auto value = read_value(*node, spec, reader.problems());
    if (!value) continue;
    options.set(spec.name, *value);
    options.set_where(spec.name, node->where);
  }
  return options;
}

}  // namespace shardsim
