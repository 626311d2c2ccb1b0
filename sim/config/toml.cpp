// SPDX-License-Identifier: Apache-2.0
// TOML through toml++, which parses and validates; places in bytes, the order of keys and the text of numbers are recovered from its source
// regions.
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#define TOML_MAX_NESTED_VALUES 64
#include "sim/config/toml.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "sim/config/node_check.hpp"

namespace shardsim {
namespace {

/// Places of toml++ (line and column in code points) as offsets and columns in bytes.
class TomlPlaces {
 public:
  explicit TomlPlaces(std::shared_ptr<const Source> source) : source_(std::move(source)) {
    const std::string& text = source_->text;
    for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) starts_.push_back(at + 1);
  }

  [[nodiscard]] std::size_t offset(const toml::source_position& place) const {
    const std::string& text = source_->text;
    if (place.line == 0) return 0;
    std::size_t at = starts_[std::min<std::size_t>(place.line, starts_.size()) - 1];
    for (toml::source_index i = 1; i < place.column && at < text.size() && text[at] != '\n'; ++i)
      for (++at; at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;) ++at;
    return at;
  }

  [[nodiscard]] Where where(const toml::source_position& place) const {
    if (place.line == 0) return {source_, 0, 0};
    const std::size_t line = std::min<std::size_t>(place.line, starts_.size());
    return {source_, static_cast<int>(line), static_cast<int>(offset(place) - starts_[line - 1]) + 1};
  }

  [[nodiscard]] std::string_view text(const toml::source_region& region) const {
    const std::size_t begin = offset(region.begin), end = std::max(begin, offset(region.end));
    return std::string_view(source_->text).substr(begin, end - begin);
  }

 private:
  std::shared_ptr<const Source> source_;
  std::vector<std::size_t> starts_{0};
};

/// A key of thousands of parts would become tables as deep, which recursion cannot free: the place of the first one that is too deep.
std::optional<std::size_t> too_deep_key(std::string_view text, int depth) {
  int dots = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      dots = 0;
    } else if (c == '"' || c == '\'') {
      const std::string fence(3, c);
      const bool several_lines = text.substr(at, 3) == fence;
      at += several_lines ? 3 : 1;
      while (at < text.size() && (several_lines ? text.substr(at, 3) != fence : text[at] != c && text[at] != '\n'))
        at += c == '"' && text[at] == '\\' ? 2 : 1;
      if (several_lines) at += 2;
    } else if (c == '.') {
      if (++dots > depth) return at;
    } else if (c == '\n' || c == '=' || c == ',' || c == '[' || c == ']' || c == '{' || c == '}') {
      dots = 0;
    }
  }
  return std::nullopt;
}

class TomlTree {
 public:
  TomlTree(const TomlPlaces& places, const ReadLimits& limits, Problems& problems)
      : places_(places), limits_(limits), problems_(problems) {}

  ConfigNode convert(const toml::node& from, int depth) {
    ConfigNode node;
    node.where = places_.where(from.source().begin);
    if (++nodes_ == limits_.nodes + 1) problems_.add(node.where, fmt::format("more than {} values", limits_.nodes));
    if (depth > limits_.depth && problems_.empty()) problems_.add(node.where, fmt::format("nested deeper than {} levels", limits_.depth));
    if (!problems_.empty()) return node;
    if (const auto* table = from.as_table()) {
      node.kind = ConfigNode::Kind::map;
      for (const auto& [key, value] : *table)
        node.entries.push_back({std::string(key.str()), places_.where(key.source().begin), convert(value, depth + 1)});
      std::stable_sort(node.entries.begin(), node.entries.end(), [](const auto& a, const auto& b) {
        return std::pair(a.where.line, a.where.column) < std::pair(b.where.line, b.where.column);
      });
    } else if (const auto* list = from.as_array()) {
      node.kind = ConfigNode::Kind::list;
      for (const auto& item : *list) node.items.push_back(convert(item, depth + 1));
    } else {
      node.kind = ConfigNode::Kind::scalar;
      scalar(from, node);
    }
    return node;
  }

 private:
  /// Strings are text; whole numbers are decimal; the rest stands as written, without the underscores between digits.
  void scalar(const toml::node& from, ConfigNode& node) const {
    if (const auto* text = from.as_string()) {
      node.quoted = true;
      node.text = text->get();
    } else if (const auto* whole = from.as_integer()) {
      node.text = std::to_string(whole->get());
    } else {
      node.text = places_.text(from.source());
      while (!node.text.empty() && (node.text.back() == ' ' || node.text.back() == '\t' || node.text.back() == '\r')) node.text.pop_back();
      if (from.is_floating_point()) std::erase(node.text, '_');
      if (from.is_date() || from.is_time() || from.is_date_time()) node.quoted = true;
    }
  }

  const TomlPlaces& places_;
  const ReadLimits& limits_;
  Problems& problems_;
  std::size_t nodes_ = 0;
};

/// "Error while parsing key-value pair: cannot redefine ..." without its first half.
std::string toml_complaint(std::string_view description) {
  if (description.starts_with("Error while parsing "))
    if (const auto colon = description.find(": "); colon != std::string_view::npos) description.remove_prefix(colon + 2);
  return "not TOML: " + printable(description);
}

}  // namespace

Result<ConfigNode> read_toml(const Source& text, const ReadLimits& limits) {
  const auto source = std::make_shared<const Source>(text);
  Problems problems = check_text(source, limits);
  if (!problems.empty()) return tl::unexpected(std::move(problems));
  if (const auto deep = too_deep_key(source->text, limits.depth)) {
    problems.add(PlaceFinder(source).at(*deep), fmt::format("a key of more than {} parts", limits.depth));
    return tl::unexpected(std::move(problems));
  }
  const TomlPlaces places(source);
  try {
    const toml::table table = toml::parse(std::string_view(source->text));
    ConfigNode root = TomlTree(places, limits, problems).convert(table, 0);
    if (!problems.empty()) return tl::unexpected(std::move(problems));
    return root;
  } catch (const toml::parse_error& error) {
    problems.add(places.where(error.source().begin), toml_complaint(error.description()));
    return tl::unexpected(std::move(problems));
  }
}

}  // namespace shardsim
