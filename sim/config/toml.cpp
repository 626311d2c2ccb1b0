// SPDX-License-Identifier: Apache-2.0
#include "sim/config/toml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

namespace shardsim {
namespace {

/// Stops the reading; turned into a Result at the only entry.
struct Stop {
  Where where;
  std::string message;
};

struct Key {
  std::string text;
  Where where;
};

bool bare(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-'; }

/// The value of a hexadecimal digit, or -1.
int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto byte = [&out](std::uint32_t value) { out += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xC0 | code >> 6);
    byte(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    byte(0xE0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  } else {
    byte(0xF0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3F));
    byte(0x80 | (code >> 6 & 0x3F));
    byte(0x80 | (code & 0x3F));
  }
}

class Reader {
 public:
  Reader(const Source& source, const ReadLimits& limits)
      : source_(std::make_shared<const Source>(source)), text_(source_->text), limits_(limits) {}

  ConfigNode document() {
    root_.kind = ConfigNode::Kind::map;
    root_.where = here();
    ConfigNode* table = &root_;
    for (skip_lines(); !done(); skip_lines()) {
      if (peek() == '[') {
        table = header();
      } else {
        pair(*table);
      }
      end_of_line();
    }
    return std::move(root_);
  }

 private:
  // Characters. A position is a line and a column in bytes, both from 1.
  [[nodiscard]] bool done() const { return at_ >= text_.size(); }
  [[nodiscard]] char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  [[nodiscard]] bool starts(std::string_view word) const { return text_.substr(at_, word.size()) == word; }
  [[nodiscard]] Where here() const { return {source_, line_, static_cast<int>(at_ - line_start_) + 1}; }
  [[noreturn]] void stop(std::string message) const { throw Stop{here(), std::move(message)}; }
  char next() {
    const char c = text_[at_++];
    if (c == '\n') {
      ++line_;
      line_start_ = at_;
    }
    return c;
  }
  void skip(std::size_t count) {
    while (count-- > 0 && !done()) next();
  }
  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t') next();
  }
  void skip_comment() {
    if (peek() == '#')
      while (!done() && peek() != '\n') next();
  }
  void skip_lines() {
    while (!done()) {
      skip_blanks();
      skip_comment();
      if (peek() == '\r' && peek(1) == '\n') next();
      if (done() || peek() != '\n') return;
      next();
    }
  }
  void end_of_line() {
    skip_blanks();
    skip_comment();
    if (peek() == '\r' && peek(1) == '\n') next();
    if (!done() && peek() != '\n') stop("expected the end of the line");
  }
  void expect(char c, std::string_view what) {
    if (done() || peek() != c) stop(fmt::format("expected '{}' {}", c, what));
    next();
  }

  // Keys and tables.
  Key key() {
    Key result{"", here()};
    if (peek() == '"' || peek() == '\'') {
      result.text = string();
    } else {
      while (bare(peek())) result.text += next();
      if (result.text.empty()) stop("expected a key");
    }
    return result;
  }

  std::vector<Key> dotted_key() {
    std::vector<Key> path{key()};
    for (skip_blanks(); peek() == '.'; skip_blanks()) {
      next();
      skip_blanks();
      path.push_back(key());
    }
    return path;
  }

  void check_depth(int depth) const {
    if (depth > limits_.depth) stop(fmt::format("nested deeper than {} levels", limits_.depth));
  }

  void count_node() {
    if (++nodes_ > limits_.nodes) stop(fmt::format("more than {} values", limits_.nodes));
  }

  ConfigNode& child(ConfigNode& table, const Key& key) {
    for (auto& entry : table.entries)
      if (entry.key == key.text) return entry.value;
    count_node();
    ConfigNode fresh;
    fresh.kind = ConfigNode::Kind::map;
    fresh.where = key.where;
    table.entries.push_back({key.text, key.where, std::move(fresh)});
    return table.entries.back().value;
  }

  /// The table that `key` names below `table`, made if it is not there; of an array of tables, the last one. `trail` becomes its name.
  ConfigNode& descend(ConfigNode& table, const Key& key, std::string& trail) {
    ConfigNode& found = child(table, key);
    trail += '\0' + key.text;
    if (found.kind == ConfigNode::Kind::list && !found.items.empty() && found.items.back().kind == ConfigNode::Kind::map) {
      trail += '\0' + std::to_string(found.items.size());
      return found.items.back();
    }
    if (found.kind != ConfigNode::Kind::map) throw Stop{key.where, fmt::format("'{}' is a value, not a table", key.text)};
    return found;
  }

  ConfigNode* header() {
    const Where start = here();
    const bool list = starts("[[");
    skip(list ? 2 : 1);
    skip_blanks();
    const auto path = dotted_key();
    check_depth(static_cast<int>(path.size()));
    expect(']', "after a table's name");
    if (list) expect(']', "after the name of an array of tables");
    ConfigNode* table = &root_;
    std::string trail;
    for (std::size_t i = 0; i + 1 < path.size(); ++i) table = &descend(*table, path[i], trail);
    return list ? append_table(*table, path.back(), start) : open_table(*table, path.back(), start, trail);
  }

  ConfigNode* append_table(ConfigNode& parent, const Key& key, const Where& start) {
    const bool known = parent.find(key.text) != nullptr;
    ConfigNode& list = child(parent, key);
    if (!known) list.kind = ConfigNode::Kind::list;
    if (list.kind != ConfigNode::Kind::list) throw Stop{key.where, fmt::format("'{}' is not an array of tables", key.text)};
    count_node();
    ConfigNode& item = list.items.emplace_back();
    item.kind = ConfigNode::Kind::map;
    item.where = start;
    return &item;
  }

  ConfigNode* open_table(ConfigNode& parent, const Key& key, const Where& start, std::string& trail) {
    ConfigNode& table = descend(parent, key, trail);
    if (!opened_.insert(trail).second) throw Stop{key.where, fmt::format("the table '{}' is defined twice", key.text)};
    table.where = start;
    return &table;
  }

  void pair(ConfigNode& table, int depth = 0) {
    const auto path = dotted_key();
    check_depth(depth + static_cast<int>(path.size()));
    expect('=', "after a key");
    skip_blanks();
    ConfigNode* target = &table;
    std::string trail;
    for (std::size_t i = 0; i + 1 < path.size(); ++i) target = &descend(*target, path[i], trail);
    if (target->find(path.back().text) != nullptr)
      throw Stop{path.back().where, fmt::format("the key '{}' is defined twice", path.back().text)};
    ConfigNode read = value(depth + 1);
    child(*target, path.back()) = std::move(read);
  }

  // Values.
  ConfigNode value(int depth) {
    check_depth(depth);
    count_node();
    ConfigNode node;
    node.where = here();
    switch (peek()) {
      case '[':
        array(node, depth);
        return node;
      case '{':
        inline_table(node, depth);
        return node;
      case '"':
      case '\'':
        node.kind = ConfigNode::Kind::scalar;
        node.quoted = true;
        node.text = string();
        return node;
      default:
        scalar(node);
        return node;
    }
  }

  void array(ConfigNode& node, int depth) {
    node.kind = ConfigNode::Kind::list;
    next();
    for (skip_lines(); peek() != ']'; skip_lines()) {
      if (done()) stop("this array is not closed");
      node.items.push_back(value(depth + 1));
      skip_lines();
      if (peek() == ',') {
        next();
      } else if (!done() && peek() != ']') {
        stop("expected ',' or ']' in an array");
      }
    }
    next();
  }

  void inline_table(ConfigNode& node, int depth) {
    node.kind = ConfigNode::Kind::map;
    next();
    skip_blanks();
    if (peek() == '}') {
      next();
      return;
    }
    while (true) {
      skip_blanks();
      pair(node, depth);
      skip_blanks();
      if (peek() != ',') break;
      next();
    }
    expect('}', "or ',' in an inline table");
  }

  /// A number, a boolean or a date, kept as its text without the underscores between digits.
  void scalar(ConfigNode& node) {
    node.kind = ConfigNode::Kind::scalar;
    std::string raw;
    const auto part = [this] { return bare(peek()) || peek() == '.' || peek() == '+' || peek() == ':'; };
    while (part()) raw += next();
    const auto digits = [](char c) { return c >= '0' && c <= '9'; };
    const std::string body = raw.substr(raw.starts_with('+') || raw.starts_with('-') ? 1 : 0);
    const bool word = raw == "true" || raw == "false" || body == "inf" || body == "nan";
    if (!word && (body.empty() || !digits(body.front())))
      throw Stop{node.where, raw.empty() ? "expected a value" : fmt::format("'{}' is no TOML value", raw)};
    std::erase(raw, '_');
    node.text = based_integer(raw).value_or(raw);
  }

  /// 0x, 0o and 0b integers in decimal.
  static std::optional<std::string> based_integer(const std::string& raw) {
    if (raw.size() < 3 || raw[0] != '0') return std::nullopt;
    const int base = raw[1] == 'x' ? 16 : raw[1] == 'o' ? 8 : raw[1] == 'b' ? 2 : 0;
    if (base == 0) return std::nullopt;
    std::uint64_t sum = 0;
    for (const char c : raw.substr(2)) {
      const int digit = hex_digit(c);
      if (digit < 0 || digit >= base || sum >> 59 != 0) return std::nullopt;
      sum = sum * static_cast<std::uint64_t>(base) + static_cast<std::uint64_t>(digit);
    }
    return std::to_string(sum);
  }

  std::string string() {
    const char quote = peek();
    const std::string fence(3, quote);
    const bool several_lines = starts(fence);
    skip(several_lines ? 3 : 1);
    if (several_lines) {
      if (peek() == '\r' && peek(1) == '\n') next();
      if (peek() == '\n') next();
    }
    std::string out;
    while (several_lines ? !starts(fence) : peek() != quote) {
      if (done() || (!several_lines && peek() == '\n')) stop("this string is not closed");
      if (peek() == '\\' && quote == '"') {
        escape(out);
      } else {
        out += next();
      }
    }
    // Up to two quotes may stand directly before the closing three.
    while (several_lines && peek(3) == quote) out += next();
    skip(several_lines ? 3 : 1);
    return out;
  }

  void escape(std::string& out) {
    const Where start = here();
    next();
    if (peek() == '\n' || peek() == ' ' || peek() == '\t' || peek() == '\r') {
      while (peek() == '\n' || peek() == ' ' || peek() == '\t' || peek() == '\r') next();
      return;
    }
    const char c = done() ? '\0' : next();
    static constexpr std::string_view from = "btnfre\"\\", to = "\b\t\n\f\r\x1b\"\\";
    if (c == 'u' || c == 'U') {
      append_utf8(out, code_point(c == 'u' ? 4 : 8, start));
    } else if (const auto index = from.find(c); c != '\0' && index != std::string_view::npos) {
      out += to[index];
    } else {
      throw Stop{start, "unknown escape in a string"};
    }
  }

  std::uint32_t code_point(int digits, const Where& start) {
    std::uint32_t code = 0;
    for (int i = 0; i < digits; ++i) {
      const int digit = done() ? -1 : hex_digit(peek());
      if (digit < 0) throw Stop{start, fmt::format("expected {} hexadecimal digits", digits)};
      code = code << 4 | static_cast<std::uint32_t>(digit);
      next();
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) throw Stop{start, "not a Unicode code point"};
    return code;
  }

  std::shared_ptr<const Source> source_;
  std::string_view text_;
  ReadLimits limits_;
  std::size_t at_ = 0, line_start_ = 0, nodes_ = 0;
  int line_ = 1;
  ConfigNode root_;
  std::set<std::string> opened_;  // names of the tables that have had a header
};

}  // namespace

Result<ConfigNode> read_toml(const Source& source, const ReadLimits& limits) {
  Problems problems;
  if (source.text.size() > limits.bytes) {
    problems.add({std::make_shared<const Source>(source), 0, 0}, fmt::format("larger than {} bytes", limits.bytes));
    return tl::unexpected(problems);
  }
  try {
    return Reader(source, limits).document();
  } catch (const Stop& stop) {
    problems.add(stop.where, stop.message);
    return tl::unexpected(problems);
  }
}

}  // namespace shardsim
