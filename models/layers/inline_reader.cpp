// SPDX-License-Identifier: Apache-2.0
// `layers:` of a scenario; the format is documented in docs/layers.md.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "models/families/hf_config.hpp"
#include "models/layers/layers.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t max_dimension = std::int64_t{1} << 32, max_repeat = 1 << 16;
const std::vector<std::string> types{"linear", "conv2d", "norm", "embedding", "activation", "attention", "loss", "layer"};

struct Item {
  std::string name;
  std::int64_t repeat = 1;
  bool block = false;
  std::vector<InlineModule> modules;
  Where where;
  bool loss = false;  ///< cross-entropy over what the layer before makes
};

std::vector<std::int64_t> read_shape(const ConfigNode& node, Problems& problems) {
  std::vector<std::int64_t> shape;
  if (node.kind != ConfigNode::Kind::list) {
    problems.add(node.where, "a shape is a list of sizes, such as [1024, 768]");
    return shape;
  }
  double elements = 1;
  for (const ConfigNode& size : node.items) {
    shape.push_back(as_integer(size, problems, 1, max_dimension).value_or(1));
    elements *= static_cast<double>(shape.back());
  }
  if (elements > max_elements) problems.add(node.where, "a shape of more than 10^16 elements");
  return shape;
}

/// One size for both directions, or [height, width].
std::pair<std::int64_t, std::int64_t> read_pair(MapReader& map, std::string_view key) {
  const ConfigNode* node = map.require(key);
  if (node == nullptr) return {1, 1};
  constexpr std::int64_t max = 1 << 20;
  if (node->kind != ConfigNode::Kind::list) {
    const std::int64_t both = as_integer(*node, map.problems(), 1, max).value_or(1);
    return {both, both};
  }
  if (node->items.size() != 2) {
    map.problems().add(node->where, "'" + std::string(key) + "' is one size or [height, width]");
    return {1, 1};
  }
  return {as_integer(node->items[0], map.problems(), 1, max).value_or(1), as_integer(node->items[1], map.problems(), 1, max).value_or(1)};
}

std::int64_t size(MapReader& map, std::string_view key) {
  if (map.require(key) == nullptr) return 1;
  return map.integer(key, 1, 1, max_dimension);
}

void read_convolution(MapReader& map, InlineModule& m) {
  m.kind = InlineModule::Kind::conv2d;
  m.in = size(map, "in");
  m.out = size(map, "out");
  std::tie(m.kernel_height, m.kernel_width) = read_pair(map, "kernel");
  std::tie(m.output_height, m.output_width) = read_pair(map, "output");
  m.groups = map.integer("groups", 1, 1, max_dimension);
  m.bias = map.boolean("bias", true);
  if (m.in % m.groups != 0 || m.out % m.groups != 0) map.problems().add(map.node().where, "groups must divide 'in' and 'out'");
}

void read_parameters(MapReader& map, InlineModule& m) {
  m.kind = InlineModule::Kind::shapes;
  const ConfigNode* node = map.require("parameters");
  if (node == nullptr) return;
  if (node->kind != ConfigNode::Kind::map || node->entries.empty()) {
    map.problems().add(node->where, "'parameters' is a map from names to shapes, such as {weight: [1024, 768], bias: [1024]}");
    return;
  }
  for (const Entry& entry : node->entries) m.shapes.emplace_back(entry.key, read_shape(entry.value, map.problems()));
}

void read_attention(MapReader& map, InlineModule& m) {
  m.kind = InlineModule::Kind::attention;
  m.in = m.out = size(map, "width");
  m.heads = size(map, "heads");
  m.kv_heads = map.integer("kv_heads", m.heads, 1, max_dimension);
  m.head_dim = map.integer("head_dim", std::max<std::int64_t>(1, m.in / m.heads), 1, 1 << 14);
  m.window = map.integer("window", 0, 0, std::int64_t{1} << 40);
  m.causal = map.boolean("causal", true);
  m.bias = map.boolean("bias", false);
  if (m.heads > (1 << 14)) map.problems().add(map.node().where, "more than 16384 heads");
  if (m.heads % m.kv_heads != 0) map.problems().add(map.node().where, "kv_heads must divide 'heads'");
}

InlineModule read_module(MapReader& map, std::string name, const std::string& type) {
  InlineModule m;
  m.name = std::move(name);
  if (type == "linear") {
    m.kind = InlineModule::Kind::linear;
    m.in = size(map, "in");
    m.out = size(map, "out");
    m.bias = map.boolean("bias", true);
    m.tied_to = map.text("tied_to", "");
  } else if (type == "attention") {
    read_attention(map, m);
  } else if (type == "conv2d") {
    read_convolution(map, m);
  } else if (type == "norm") {
    m.kind = InlineModule::Kind::norm;
    m.out = size(map, "size");
    m.bias = map.boolean("bias", true);
  } else if (type == "embedding") {
    m.kind = InlineModule::Kind::embedding;
    m.in = size(map, "rows");
    m.out = size(map, "width");
  } else if (type == "activation") {
    m.kind = InlineModule::Kind::activation;
  } else {
    read_parameters(map, m);
  }
  return m;
}

std::string read_name(MapReader& map) {
  const ConfigNode* node = map.require("name");
  return node == nullptr ? std::string() : map.text("name", "");
}

/// An item's own module has no name of its own: the item's name stands in front of its parameters. Members of a group have theirs.
Item read_item(const ConfigNode& node, Problems& problems) {
  MapReader map(node, problems, "layer");
  Item item{read_name(map), 1, false, {}, node.where};
  item.repeat = map.integer("repeat", 1, 1, max_repeat);
  item.block = map.boolean("block", false);
  const ConfigNode* members = map.find("layers");
  const std::string type = map.choice("type", types, "layer");
  item.loss = type == "loss" && members == nullptr;
  if (item.loss) {
    map.finish();
    return item;
  }
  if (members == nullptr) {
    item.modules.push_back(read_module(map, "", type));
  } else if (members->kind != ConfigNode::Kind::list || members->items.empty()) {
    problems.add(members->where, "'layers' of a layer is a list of its parts");
  } else {
    for (const ConfigNode& member : members->items) {
      MapReader part(member, problems, "part of a layer");
      std::string name = read_name(part);
      item.modules.push_back(read_module(part, std::move(name), part.choice("type", types, "layer")));
      part.finish();
    }
  }
  map.finish();
  return item;
}

/// Elements a token that a module hands over, given those it gets.
std::int64_t width_after(const InlineModule& m, std::int64_t before) {
  using Kind = InlineModule::Kind;
  switch (m.kind) {
    case Kind::linear:
      return m.out;
    case Kind::conv2d:
      return m.out * m.output_height * m.output_width;
    case Kind::norm:
      return before > 0 ? before : m.out;
    case Kind::embedding:
      return m.out;
    case Kind::activation:
      return before;
    case Kind::attention:
      return m.out;
    case Kind::shapes:
      break;
  }
  std::int64_t width = before;
  for (const auto& [name, shape] : m.shapes)
    if (shape.size() >= 2) width = shape.front();
  return width;
}

/// A bound on the elements a token that a module reads.
double widest_input(const InlineModule& m) {
  using Kind = InlineModule::Kind;
  double widest = 1;
  if (m.kind == Kind::linear) widest = static_cast<double>(m.in);
  if (m.kind == Kind::attention) widest = static_cast<double>(m.in) + 3 * static_cast<double>(m.heads) * static_cast<double>(m.head_dim);
  if (m.kind == Kind::conv2d)
    widest = static_cast<double>(m.in) * static_cast<double>(m.output_height) * static_cast<double>(m.output_width);
  for (const auto& [name, shape] : m.shapes)
    for (std::size_t d = 1; d < shape.size(); ++d) widest = std::max(widest, static_cast<double>(shape[d]));
  return widest;
}

Architecture chain(const std::vector<Item>& items) {
  Architecture a;
  a.name = a.family = "layers";
  std::int64_t width = 0;
  bool classes = false;
  for (const Item& item : items) {
    classes = classes || item.loss;
    if (item.loss) continue;
    std::map<std::int64_t, std::int32_t> specs;  // by width of the input: the first repetition may get another than the rest
    for (std::int64_t i = 0; i < item.repeat; ++i) {
      const auto [at, fresh] = specs.try_emplace(width, static_cast<std::int32_t>(a.specs.size()));
      if (fresh) a.specs.push_back({item.name, item.block, InlineSpec{width, item.modules}, {}});
      a.instances.push_back({item.repeat > 1 ? item.name + '.' + std::to_string(i) : item.name, at->second, true});
      for (const InlineModule& m : item.modules) {
        a.heads = std::max(a.heads, m.heads);
        width = width_after(m, width);
        a.widest = std::max({a.widest, static_cast<double>(width), widest_input(m)});
      }
    }
  }
  if (width == 0) return a;
  a.specs.push_back({"loss", false, LossSpec{.width = width, .classes = classes, .over_tokens = true}, {}});
  a.instances.push_back({"loss", static_cast<std::int32_t>(a.specs.size() - 1), true});
  return a;
}

double elements(const InlineModule& m) {
  using Kind = InlineModule::Kind;
  const auto [in, out] = std::pair{static_cast<double>(m.in), static_cast<double>(m.out)};
  double sum = 0;
  switch (m.kind) {
    case Kind::linear:
    case Kind::embedding:
      return in * out;
    case Kind::conv2d:
      return in * out * static_cast<double>(m.kernel_height) * static_cast<double>(m.kernel_width);
    case Kind::norm:
      return 2 * out;
    case Kind::activation:
      return 0;
    case Kind::attention:
      return 2 * in * static_cast<double>(m.heads + m.kv_heads) * static_cast<double>(m.head_dim);
    case Kind::shapes:
      break;
  }
  for (const auto& [name, shape] : m.shapes) {
    double product = 1;
    for (const std::int64_t d : shape) product *= static_cast<double>(d);
    sum += product;
  }
  return sum;
}

void check_items(const std::vector<Item>& items, const ConfigNode& node, Problems& problems) {
  double total = 0;
  std::int64_t tensors = 0;
  std::set<std::string> names, weights;
  for (const Item& item : items) {
    if (item.loss && &item != &items.back()) problems.add(item.where, "a loss is the last of the layers");
    for (const InlineModule& m : item.modules) {
      if (!m.tied_to.empty() && !weights.contains(m.tied_to))
        problems.add(item.where, "no layer before has the weight " + in_quotes(m.tied_to),
                     {"a head is tied to the embedding's weight, such as embed.weight"});
      if (item.repeat == 1 && (m.kind == InlineModule::Kind::embedding || m.kind == InlineModule::Kind::linear))
        weights.insert(item.name + (m.name.empty() ? "" : "." + m.name) + ".weight");
    }
    if (!item.name.empty() && !names.insert(item.name).second) problems.add(item.where, "two layers are named '" + item.name + "'");
    for (const InlineModule& m : item.modules) {
      total += static_cast<double>(item.repeat) * elements(m);
      tensors += item.repeat * static_cast<std::int64_t>(2 + m.shapes.size());
    }
  }
  if (total > max_elements) problems.add(node.where, "the layers have more than 10^16 parameters");
  if (tensors > max_tensors) problems.add(node.where, "the layers have more than " + std::to_string(max_tensors) + " tensors");
}

}  // namespace

Result<std::shared_ptr<const Architecture>> read_layers(const ConfigNode& layers) {
  Problems problems;
  if (layers.kind != ConfigNode::Kind::list || layers.items.empty()) {
    problems.add(layers.where, "'layers' is a list of layers, each with a name and a type or parameters");
    return tl::unexpected(std::move(problems));
  }
  std::vector<Item> items;
  for (const ConfigNode& node : layers.items) items.push_back(read_item(node, problems));
  check_items(items, layers, problems);
  if (!problems.empty()) return tl::unexpected(std::move(problems));
  Architecture architecture = chain(items);
  architecture.tables = tabulate(architecture, nullptr);
  if (architecture.tables.parameters->empty()) {
    problems.add(layers.where, "the layers have no parameters");
    return tl::unexpected(std::move(problems));
  }
  return std::make_shared<const Architecture>(std::move(architecture));
}

}  // namespace shardsim
