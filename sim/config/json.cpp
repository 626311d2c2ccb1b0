// SPDX-License-Identifier: Apache-2.0
// JSON through nlohmann's SAX parser, which validates; places and the exact text of numbers are found beside it, token by token.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/config/node_check.hpp"

namespace shardsim {
namespace {

using Json = nlohmann::json;

/// Each event stands for the next token of the text (separators apart), already validated by the parser.
class TokenCursor {
 public:
  explicit TokenCursor(const std::string& text) : text_(text) {}

  /// Start and length of the next token.
  std::string_view next() {
    at_ = std::min(text_.find_first_not_of(separators, at_), text_.size());
    const std::size_t begin = at_;
    at_ = end_of_token(begin);
    return std::string_view(text_).substr(begin, at_ - begin);
  }
  [[nodiscard]] std::size_t offset_of(std::string_view token) const { return static_cast<std::size_t>(token.data() - text_.data()); }

 private:
  static constexpr const char* separators = " \t\r\n,:\xEF\xBB\xBF";

  [[nodiscard]] std::size_t end_of_token(std::size_t at) const {
    if (at >= text_.size()) return at;
    if (text_[at] == '"') {
      for (++at; at < text_.size() && text_[at] != '"'; ++at)
        if (text_[at] == '\\') ++at;
      return std::min(at + 1, text_.size());
    }
    if (std::string_view("{}[]").find(text_[at]) != std::string_view::npos) return at + 1;
    return std::min(text_.find_first_of(" \t\r\n,:{}[]\"", at), text_.size());
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

class JsonTree final : public nlohmann::json_sax<Json> {
 public:
  JsonTree(std::shared_ptr<const Source> source, const ReadLimits& limits)
      : source_(std::move(source)), limits_(limits), cursor_(source_->text), finder_(source_) {}

  bool null() override { return leaf(ConfigNode::Kind::null, false, nullptr); }
  bool boolean(bool) override { return leaf(ConfigNode::Kind::scalar, false, nullptr); }
  bool number_integer(number_integer_t) override { return leaf(ConfigNode::Kind::scalar, false, nullptr); }
  bool number_unsigned(number_unsigned_t) override { return leaf(ConfigNode::Kind::scalar, false, nullptr); }
  bool number_float(number_float_t, const string_t&) override { return leaf(ConfigNode::Kind::scalar, false, nullptr); }
  bool string(string_t& value) override { return leaf(ConfigNode::Kind::scalar, true, &value); }
  bool binary(binary_t&) override { return false; }  // never in a text
  bool start_object(std::size_t) override { return open(ConfigNode::Kind::map); }
  bool start_array(std::size_t) override { return open(ConfigNode::Kind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const Where where = next().second;
    Frame& map = open_.back();
    if (!map.keys.insert(name).second) {
      const auto first = std::find_if(map.node.entries.begin(), map.node.entries.end(), [&](const Entry& e) { return e.key == name; });
      problems.add(where, "duplicate key " + in_quotes(name), {fmt::format("it stands in line {} already", first->where.line)});
    }
    map.entry = Entry{name, where, {}};
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
    std::string message = error.what();
    if (const auto at = message.find("syntax error"); at != std::string::npos)
      message.erase(0, at);
    else if (const auto bracket = message.find("] "); bracket != std::string::npos)
      message.erase(0, bracket + 2);
    problems.add(PlaceFinder(source_).at(position > 0 ? position - 1 : 0), "not JSON: " + message);
    return false;
  }

  Problems problems;
  ConfigNode root;

 private:
  struct Frame {
    ConfigNode node;
    std::optional<Entry> entry;
    std::set<std::string> keys;
  };

  std::pair<std::string_view, Where> next() {
    const std::string_view token = cursor_.next();
    return {token, finder_.at(cursor_.offset_of(token))};
  }

  bool refuse(const Where& where, std::string message) {
    problems.add(where, std::move(message));
    return false;
  }

  bool leaf(ConfigNode::Kind kind, bool is_quoted, const std::string* value) {
    const auto [token, where] = next();
    if (++nodes_ > limits_.nodes) return refuse(where, fmt::format("more than {} values", limits_.nodes));
    ConfigNode node;
    node.kind = kind;
    node.quoted = is_quoted;
    node.where = where;
    if (kind == ConfigNode::Kind::scalar) node.text = value ? *value : std::string(token);
    finish(std::move(node));
    return true;
  }

  bool open(ConfigNode::Kind kind) {
    const Where where = next().second;
    if (++nodes_ > limits_.nodes) return refuse(where, fmt::format("more than {} values", limits_.nodes));
    if (static_cast<int>(open_.size()) >= limits_.depth)
      return refuse(where, fmt::format("nested more than {} levels deep", limits_.depth));
    Frame& frame = open_.emplace_back();
    frame.node.kind = kind;
    frame.node.where = where;
    return true;
  }

  bool close() {
    cursor_.next();
    ConfigNode node = std::move(open_.back().node);
    open_.pop_back();
    finish(std::move(node));
    return true;
  }

  void finish(ConfigNode node) {
    if (open_.empty()) {
      root = std::move(node);
      return;
    }
    Frame& parent = open_.back();
    if (parent.node.kind == ConfigNode::Kind::list) {
      parent.node.items.push_back(std::move(node));
      return;
    }
    parent.entry->value = std::move(node);
    parent.node.entries.push_back(std::move(*parent.entry));
    parent.entry.reset();
  }

  std::shared_ptr<const Source> source_;
  ReadLimits limits_;
  TokenCursor cursor_;
  PlaceFinder finder_;
  std::vector<Frame> open_;
  std::size_t nodes_ = 0;
};

}  // namespace

Result<ConfigNode> read_json(const Source& text, const ReadLimits& limits) {
  const auto source = std::make_shared<const Source>(text);
  if (Problems problems = check_text(source, limits); !problems.empty()) return tl::make_unexpected(std::move(problems));
  JsonTree builder(source, limits);
  const bool complete = Json::sax_parse(source->text, &builder);
  if (!builder.problems.empty()) return tl::make_unexpected(std::move(builder.problems));
  if (!complete) throw std::logic_error("read_json stopped without a problem");
  return std::move(builder.root);
}

}  // namespace shardsim
