// SPDX-License-Identifier: Apache-2.0
// YAML through yaml-cpp's events: the tree is built here, so that depth and size are bounded while reading and every key keeps its place.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "sim/config/node_check.hpp"

namespace shardsim {
namespace {

/// Reading goes no further: the problem is noted already.
struct YamlStop {};

/// A node that an alias may repeat: what it costs is known before it is copied.
struct Anchored {
  ConfigNode node;
  std::size_t nodes = 1;
  int height = 1;
};

class YamlTree final : public YAML::EventHandler {
 public:
  YamlTree(std::shared_ptr<const Source> source, const ReadLimits& limits) : source_(std::move(source)), limits_(limits) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) stop(place(mark), "a second document starts here; one file holds one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    ConfigNode node;
    node.where = place(mark);
    leaf(std::move(node), anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    refuse_tag(mark, tag);
    ConfigNode node;
    node.kind = ConfigNode::Kind::scalar;
    node.where = place(mark);
    node.quoted = tag == "!";  // yaml-cpp's tag of a scalar in quotes or in a block
    node.text = value;
    leaf(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, ConfigNode::Kind::list);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, ConfigNode::Kind::map);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) stop(place(mark), "the alias stands inside the node that it repeats");
    const Anchored& anchored = found->second;
    count(anchored.nodes, place(mark));
    if (static_cast<int>(open_.size()) + anchored.height > limits_.depth) too_deep(place(mark));
    ConfigNode copy = anchored.node;
    finish(std::move(copy), anchored.nodes, anchored.height, YAML::NullAnchor, place(mark));
  }

  [[nodiscard]] Where place(const YAML::Mark& mark) const { return {source_, std::max(0, mark.line) + 1, std::max(0, mark.column) + 1}; }

  Problems problems;
  ConfigNode root;

 private:
  /// A list or map whose end has not come yet.
  struct Frame {
    ConfigNode node;
    YAML::anchor_t anchor = YAML::NullAnchor;
    std::size_t nodes = 1;
    int height = 1;
    std::optional<Entry> entry;  ///< of a map: the key has come, the value has not
    std::set<std::string> keys;
  };

  [[noreturn]] void stop(Where where, std::string message) {
    problems.add(std::move(where), std::move(message));
    throw YamlStop{};
  }
  [[noreturn]] void too_deep(Where where) { stop(std::move(where), fmt::format("nested more than {} levels deep", limits_.depth)); }

  void count(std::size_t nodes, const Where& where) {
    nodes_ += nodes;
    if (nodes_ > limits_.nodes) stop(where, fmt::format("more than {} values once aliases are expanded", limits_.nodes));
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    stop(place(mark), "tags are not supported: " + in_quotes(tag));
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, ConfigNode::Kind kind) {
    refuse_tag(mark, tag);
    if (awaits_key()) stop(place(mark), "a list or a map cannot be a key; or a bracket is never closed");
    count(1, place(mark));
    if (static_cast<int>(open_.size()) >= limits_.depth) too_deep(place(mark));
    Frame& frame = open_.emplace_back();
    frame.node.kind = kind;
    frame.node.where = place(mark);
    frame.anchor = anchor;
  }

  void close() {
    Frame frame = std::move(open_.back());
    open_.pop_back();
    const Where where = frame.node.where;
    finish(std::move(frame.node), frame.nodes, frame.height, frame.anchor, where);
  }

  void leaf(ConfigNode node, YAML::anchor_t anchor) {
    const Where where = node.where;
    count(1, where);
    finish(std::move(node), 1, 1, anchor, where);
  }

  [[nodiscard]] bool awaits_key() const { return !open_.empty() && open_.back().node.kind == ConfigNode::Kind::map && !open_.back().entry; }

  /// A node is complete: remember it if it has an anchor, and put it where it belongs.
  void finish(ConfigNode node, std::size_t nodes, int height, YAML::anchor_t anchor, const Where& where) {
    if (anchor != YAML::NullAnchor) {
      count(nodes, where);
      anchors_[anchor] = {node, nodes, height};
    }
    if (open_.empty()) {
      root = std::move(node);
      return;
    }
    Frame& parent = open_.back();
    parent.nodes += nodes;
    parent.height = std::max(parent.height, height + 1);
    if (parent.node.kind == ConfigNode::Kind::list) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.entry) {
      start_entry(parent, node, where);
    } else {
      parent.entry->value = std::move(node);
      parent.node.entries.push_back(std::move(*parent.entry));
      parent.entry.reset();
    }
  }

  void start_entry(Frame& map, const ConfigNode& key, const Where& where) {
    if (key.kind != ConfigNode::Kind::scalar) stop(where, "a key must be a word");
    if (key.text == "<<" && !key.quoted) stop(where, "merge keys (<<) are not supported");
    if (!map.keys.insert(key.text).second) {
      const auto first = std::find_if(map.node.entries.begin(), map.node.entries.end(), [&](const Entry& e) { return e.key == key.text; });
      problems.add(where, "duplicate key " + in_quotes(key.text), {fmt::format("it stands in line {} already", first->where.line)});
    }
    map.entry = Entry{key.text, where, {}};
  }

  std::shared_ptr<const Source> source_;
  ReadLimits limits_;
  std::vector<Frame> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::size_t nodes_ = 0;
  int documents_ = 0;
};

/// yaml-cpp's message for a tab in the indentation speaks of something else.
std::vector<std::string> notes_for(const Source& source, int line) {
  std::istringstream lines(source.text);
  std::string text;
  for (int i = 0; i < line && std::getline(lines, text); ++i) {}
  const std::string indentation = text.substr(0, text.find_first_not_of(" \t"));
  if (indentation.find('\t') == std::string::npos) return {};
  return {"YAML allows no tabs in indentation: use spaces"};
}

}  // namespace

Result<ConfigNode> read_yaml(const Source& text, const ReadLimits& limits) {
  const auto source = std::make_shared<const Source>(text);
  if (Problems problems = check_text(source, limits); !problems.empty()) return tl::make_unexpected(std::move(problems));
  YamlTree builder(source, limits);
  builder.root.where = {source, 1, 1};
  try {
    std::istringstream stream(source->text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {}
  } catch (const YamlStop&) {
  } catch (const YAML::Exception& error) {
    builder.problems.add(builder.place(error.mark), "not YAML: " + error.msg, notes_for(*source, error.mark.line + 1));
  }
  if (!builder.problems.empty()) return tl::make_unexpected(std::move(builder.problems));
  return std::move(builder.root);
}

}  // namespace shardsim
