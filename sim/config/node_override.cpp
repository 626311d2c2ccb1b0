// SPDX-License-Identifier: Apache-2.0
// `--set a.b.c=value`: one value put into a tree that was read from a file.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "sim/config/node.hpp"

namespace shardsim {
namespace {

void rehome(ConfigNode& node, const std::shared_ptr<const Source>& source) {
  node.where.source = source;
  for (ConfigNode& item : node.items) rehome(item, source);
  for (Entry& entry : node.entries) {
    entry.where.source = source;
    rehome(entry.value, source);
  }
}

/// The value of the assignment, with positions that count from the assignment's start.
Result<ConfigNode> read_value(const std::shared_ptr<const Source>& source, std::size_t start) {
  Source padded{source->name, std::string(start, ' ') + source->text.substr(start)};
  return read_yaml(padded)
      .map([&](ConfigNode value) {
        rehome(value, source);
        if (value.where.line == 0) value.where = {source, 1, static_cast<int>(start) + 1};
        return value;
      })
      .map_error([&](Problems problems) {
        Problems moved;
        for (Problem problem : problems.list())
          moved.add({source, problem.where.line, problem.where.column}, problem.message, problem.notes);
        return moved;
      });
}

std::optional<std::size_t> index_from(std::string_view word) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), index);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return index;
}

/// The child of `node` named by one word of the path, made if it is missing; a sentence where there can be none.
tl::expected<ConfigNode*, std::string> child(ConfigNode& node, std::string_view word, const Where& where) {
  if (node.kind == ConfigNode::Kind::list) {
    const auto index = index_from(word);
    if (!index || *index > node.items.size())
      return tl::make_unexpected(fmt::format("{} is no item of a list of {}", in_quotes(word), node.items.size()));
    if (*index == node.items.size()) node.items.emplace_back().where = where;
    return &node.items[*index];
  }
  if (node.kind == ConfigNode::Kind::scalar)
    return tl::make_unexpected(fmt::format("cannot set {} of the single value {}", in_quotes(word), in_quotes(node.text)));
  node.kind = ConfigNode::Kind::map;
  const auto found = std::find_if(node.entries.begin(), node.entries.end(), [&](const Entry& entry) { return entry.key == word; });
  if (found != node.entries.end()) {
    found->where = where;  // a message about this key now concerns what was set
    return &found->value;
  }
  ConfigNode empty;
  empty.where = where;
  node.entries.push_back({std::string(word), where, std::move(empty)});
  return &node.entries.back().value;
}

}  // namespace

Result<ConfigNode> with_override(ConfigNode root, std::string_view assignment) {
  const auto source = std::make_shared<const Source>(Source{"--set", std::string(assignment)});
  Problems problems;
  const auto fail = [&](std::size_t at, std::string message) {
    problems.add({source, 1, static_cast<int>(at) + 1}, std::move(message));
    return tl::make_unexpected(problems);
  };
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) return fail(0, "expected KEY=VALUE, such as training.micro_batch_size=2");
  Result<ConfigNode> value = read_value(source, equals + 1);
  if (!value) return tl::make_unexpected(value.error());

  ConfigNode* node = &root;
  for (std::size_t begin = 0; begin <= equals;) {
    const std::size_t end = std::min(assignment.find('.', begin), equals);
    if (end == begin) return fail(begin, "a key of the path is empty");
    const auto next = child(*node, assignment.substr(begin, end - begin), {source, 1, static_cast<int>(begin) + 1});
    if (!next) return fail(begin, next.error());
    node = *next;
    begin = end + 1;
  }
  *node = std::move(*value);
  return root;
}

}  // namespace shardsim
