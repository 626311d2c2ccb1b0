// SPDX-License-Identifier: Apache-2.0
#include "scenarios/importers/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/config/node_check.hpp"

namespace shardsim {
namespace {

bool name_char(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

/// The words of a script, one logical line after another.
class CommandLine {
 public:
  CommandLine(std::shared_ptr<const Source> source, const ReadLimits& limits)
      : source_(std::move(source)), text_(source_->text), limits_(limits), places_(source_) {
    root_.kind = ConfigNode::Kind::map;
    root_.where = {source_, 1, 1};
  }

  Result<ConfigNode> read() {
    while (at_ < text_.size()) step();
    end_of_value();
    if (!problems_.empty()) return tl::unexpected(std::move(problems_));
    return std::move(root_);
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '\\' && at_ + 1 < text_.size() && (text_[at_ + 1] == '\n' || text_[at_ + 1] == '\r')) {
      at_ += text_[at_ + 1] == '\r' ? 3 : 2;
    } else if (c == '\n' || c == ';' || c == '|' || c == '&' || c == ')') {
      end_of_value();
      ++at_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '(' || (c == '"' && open_string_)) {
      open_string_ = c == '"' ? false : open_string_;
      ++at_;
    } else if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else {
      word();
    }
  }

  void word() {
    const std::size_t start = at_;
    bool quoted = false;
    std::string out;
    while (at_ < text_.size() && std::string_view(" \t\r\n;|&()").find(text_[at_]) == std::string_view::npos) {
      const char c = text_[at_];
      if (c == '"' && open_string_) break;
      if (c == '\\') {
        if (at_ + 1 >= text_.size() || text_[at_ + 1] == '\n' || text_[at_ + 1] == '\r') break;
        out += text_[at_ + 1];
        at_ += 2;
      } else if (c == '\'' || c == '"') {
        if (c == '"' && !out.empty() && out.back() == '=' && out.front() != '-' && holds_arguments(at_ + 1)) {
          open_string_ = true;
          ++at_;
          return;
        }
        quoted = true;
        quote(c, out);
      } else if (c == '$') {
        variable(out);
      } else {
        out += c;
        ++at_;
      }
    }
    if (at_ == start) ++at_;
    take(std::move(out), quoted, start);
  }

  /// NAME="  --key value ...": the string is a list of arguments.
  [[nodiscard]] bool holds_arguments(std::size_t at) const {
    const std::size_t first = text_.find_first_not_of(" \t\r\n\\", at);
    return first != std::string_view::npos && text_.compare(first, 2, "--") == 0;
  }

  void quote(char mark, std::string& out) {
    for (++at_; at_ < text_.size() && text_[at_] != mark;) {
      if (mark == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) {
        out += text_[at_ + 1];
        at_ += 2;
      } else if (mark == '"' && text_[at_] == '$') {
        variable(out);
      } else {
        out += text_[at_++];
      }
    }
    if (at_ < text_.size()) ++at_;
  }

  /// $NAME, ${NAME} and ${NAME:-default}; one that is not assigned stays as written.
  void variable(std::string& out) {
    const std::size_t start = at_++;
    const bool braces = at_ < text_.size() && text_[at_] == '{';
    if (braces) ++at_;
    std::string name, fallback;
    while (at_ < text_.size() && name_char(text_[at_])) name += text_[at_++];
    if (braces) {
      const std::size_t close = std::min(text_.find('}', at_), text_.size());
      std::string_view rest = text_.substr(at_, close - at_);
      if (rest.starts_with(":-") || rest.starts_with(":=")) fallback = rest.substr(2);
      at_ = std::min(close + 1, text_.size());
    }
    const auto found = variables_.find(name);
    if (found != variables_.end()) {
      out += found->second;
    } else if (!fallback.empty()) {
      out += fallback;
    } else {
      out += text_.substr(start, at_ - start);
    }
    if (out.size() > limits_.bytes) stop(start, "a variable grows beyond the limit");
  }

  void take(std::string out, bool quoted, std::size_t start) {
    if (!quoted && out.size() > 2 && out[0] == '-' && out[1] == '-') return key(out, start);
    if (key_.empty()) {
      if (const auto equals = out.find('='); equals != std::string::npos && equals > 0 &&
                                             std::all_of(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(equals), name_char))
        variables_[out.substr(0, equals)] = out.substr(equals + 1);
      return;
    }
    if (out.ends_with(".py") || (out.size() > 1 && out[0] == '-' && name_char(out[1]) && !(out[1] >= '0' && out[1] <= '9')))
      return end_of_value();
    if (out.ends_with("[@]}") || out.ends_with("_ARGS") || out.ends_with("_ARGS}")) return end_of_value();
    values_.push_back(node(std::move(out), quoted, start));
  }

  void key(const std::string& out, std::size_t start) {
    end_of_value();
    const auto equals = out.find('=');
    key_ = out.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::replace(key_.begin(), key_.end(), '-', '_');
    key_where_ = places_.at(start);
    if (equals != std::string::npos) values_.push_back(node(out.substr(equals + 1), false, start));
  }

  ConfigNode node(std::string value, bool quoted, std::size_t start) {
    if (++nodes_ == limits_.nodes) stop(start, fmt::format("more than {} values", limits_.nodes));
    ConfigNode item;
    item.kind = ConfigNode::Kind::scalar;
    item.quoted = quoted;
    item.where = places_.at(start);
    item.text = std::move(value);
    return item;
  }

  void end_of_value() {
    if (key_.empty()) return;
    ConfigNode value;
    value.where = key_where_;
    if (values_.size() == 1) {
      value = std::move(values_.front());
    } else if (values_.empty()) {
      value.kind = ConfigNode::Kind::scalar;
      value.text = "true";
    } else {
      value.kind = ConfigNode::Kind::list;
      value.items = std::move(values_);
    }
    values_.clear();
    if (const auto known = index_.find(key_); known != index_.end()) {
      root_.entries[known->second].value = std::move(value);
    } else {
      index_[key_] = root_.entries.size();
      root_.entries.push_back({key_, key_where_, std::move(value)});
    }
    key_.clear();
  }

  void stop(std::size_t offset, std::string why) {
    if (problems_.empty()) problems_.add(places_.at(offset), std::move(why));
    at_ = text_.size();
  }

  std::shared_ptr<const Source> source_;
  std::string_view text_;
  ReadLimits limits_;
  PlaceFinder places_;
  Problems problems_;
  ConfigNode root_;
  std::map<std::string, std::size_t> index_;
  std::map<std::string, std::string> variables_;
  std::string key_;
  Where key_where_;
  std::vector<ConfigNode> values_;
  std::size_t at_ = 0, nodes_ = 0;
  bool open_string_ = false;
};

}  // namespace

Result<ConfigNode> read_command_line(const Source& text, const ReadLimits& limits) {
  const auto source = std::make_shared<const Source>(text);
  if (Problems problems = check_text(source, limits); !problems.empty()) return tl::unexpected(std::move(problems));
  return CommandLine(source, limits).read();
}

bool looks_like_command_line(const Source& source) {
  const std::string& text = source.text;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::size_t first = text.find_first_not_of(" \t", at);
    std::string_view line = first < end ? std::string_view(text).substr(first, end - first) : std::string_view{};
    if (line.starts_with("#!")) return true;
    if (line.starts_with("--") && line.size() > 2 && line[2] != '-') return true;
    if (!line.empty() && !line.starts_with('#') && line.find(" --") != std::string_view::npos && line.find(": ") == std::string_view::npos)
      return true;
    at = end + 1;
  }
  return false;
}

}  // namespace shardsim
