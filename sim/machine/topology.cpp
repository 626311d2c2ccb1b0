// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/topology.hpp"

#include <fmt/format.h>

#include <charconv>

#include "sim/config/node.hpp"
#include "sim/machine/ranges.hpp"

namespace shardsim {
namespace {

constexpr std::int64_t most_names = std::int64_t{1} << 16;
using Names = tl::expected<std::vector<std::string>, std::string>;

/// A number at the start of `text`, which is cut off; nothing if there is none.
std::optional<std::int64_t> leading_number(std::string_view& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

/// The numbers of "0-3,7".
tl::expected<std::vector<std::int64_t>, std::string> numbers_of(std::string_view list, const std::string& pattern) {
  const auto bad = [&] {
    return tl::unexpected(fmt::format("{}: expected numbers in brackets, as in gpu[0-7] or gpu[0,4]", in_quotes(pattern)));
  };
  std::vector<std::int64_t> numbers;
  while (true) {
    const auto first = leading_number(list);
    auto last = first;
    if (first && list.starts_with('-')) {
      list.remove_prefix(1);
      last = leading_number(list);
    }
    if (!first || !last || *last < *first) return bad();
    if (*last - *first >= most_names - static_cast<std::int64_t>(numbers.size()))
      return tl::unexpected(fmt::format("{} names more than {} devices", in_quotes(pattern), most_names));
    for (std::int64_t i = *first; i <= *last; ++i) numbers.push_back(i);
    if (list.empty()) return numbers;
    if (!list.starts_with(',')) return bad();
    list.remove_prefix(1);
  }
}

bool is_name(std::string_view text) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

Seconds latency_of(MapReader& reader, std::string_view key, Seconds fallback) {
  const Seconds latency = reader.seconds(key, fallback);
  if (reader.has(key)) within(*reader.find(key), fmt::format("'{}'", key), latency, ranges::latency, reader.problems());
  return latency;
}

Wiring wiring_of(MapReader& reader) {
  const std::string word = reader.choice("wiring", {"all", "blocks", "modulo"}, "all");
  return word == "blocks" ? Wiring::blocks : word == "modulo" ? Wiring::modulo : Wiring::all;
}

/// Only the form of an endpoint: "node*.nic[0-7]" has a part before and one behind the dot, each with brackets of its own.
void check_endpoint(MapReader& reader, std::string_view key, const std::string& text, bool inside) {
  const auto dot = text.find('.');
  const auto complain = [&](const std::string& what) { reader.problems().add(reader.find(key)->where, what); };
  if (dot != std::string::npos && inside) return complain("links inside a node name its devices without 'node': gpu0");
  if (dot != std::string::npos && text.substr(0, dot) != "node*") {
    if (const auto nodes = device_names(text.substr(0, dot)); !nodes || !nodes->front().starts_with("node"))
      return complain(nodes ? "a name with a dot is a node and a device of it: node*.nic0, node[0-3].nic[0-7]" : nodes.error());
  }
  if (const auto names = device_names(dot == std::string::npos ? text : text.substr(dot + 1)); !names) complain(names.error());
}

std::vector<TopologyLinks> read_links(const ConfigNode& list, bool inside, Problems& problems) {
  std::vector<TopologyLinks> all;
  if (list.kind != ConfigNode::Kind::list) {
    problems.add(list.where, "expected a list of links {from: gpu[0-7], to: nvswitch0, bandwidth: 450 GB/s, latency: 0.5 us}");
    return all;
  }
  for (const ConfigNode& item : list.items) {
    MapReader reader(item, problems, "link");
    TopologyLinks links;
    for (const auto& [key, text] : {std::pair<std::string_view, std::string*>{"from", &links.from}, {"to", &links.to}})
      if (reader.require(key)) {
        *text = reader.text(key, "");
        check_endpoint(reader, key, *text, inside);
      }
    if (const ConfigNode* bandwidth = reader.require("bandwidth")) {
      links.bandwidth = reader.byte_rate("bandwidth", ranges::bandwidth.least);
      within(*bandwidth, "'bandwidth'", links.bandwidth, ranges::bandwidth, problems);
    }
    links.latency = latency_of(reader, "latency", {});
    links.wiring = wiring_of(reader);
    reader.finish();
    all.push_back(links);
  }
  return all;
}

}  // namespace

Names device_names(const std::string& pattern) {
  const auto open = pattern.find('[');
  const std::string stem = pattern.substr(0, open);
  if (!is_name(stem))
    return tl::unexpected(fmt::format("{} is no name of a device: letters and a number, gpu0 or gpu[0-7]", in_quotes(pattern)));
  if (open == std::string::npos) return std::vector<std::string>{pattern};
  if (!pattern.ends_with(']')) return tl::unexpected(fmt::format("{}: ']' is missing at the end", in_quotes(pattern)));
  const auto numbers = numbers_of(std::string_view(pattern).substr(open + 1, pattern.size() - open - 2), pattern);
  if (!numbers) return tl::unexpected(numbers.error());
  std::vector<std::string> names;
  for (const std::int64_t number : *numbers) names.push_back(fmt::format("{}{}", stem, number));
  return names;
}

Topology read_topology_block(const ConfigNode& node, Problems& problems) {
  Topology topology;
  MapReader reader(node, problems, "topology");
  constexpr std::int64_t most = std::int64_t{1} << 24;
  topology.nodes_per_leaf = reader.integer("nodes_per_leaf", 0, 1, most);
  topology.oversubscription = reader.number("oversubscription", 1, 0.01, 1000);
  topology.spines = reader.integer("spines", 1, 1, 1024);
  topology.rails = reader.boolean("rails", false);
  topology.scattered = reader.choice("placement", {"packed", "scattered"}, "packed") == "scattered";
  topology.spine_latency = latency_of(reader, "spine_latency", topology.spine_latency);
  if (const ConfigNode* list = reader.find("node_links")) topology.node_links = read_links(*list, true, problems);
  if (const ConfigNode* list = reader.find("links")) topology.links = read_links(*list, false, problems);
  for (const std::string_view key : {"nodes_per_leaf", "oversubscription", "spines", "rails", "spine_latency"})
    if (!topology.links.empty() && reader.has(key))
      problems.add(reader.find(key)->where, fmt::format("'{}' and 'links' both say how the nodes are joined: choose one", key));
  if (topology.nodes_per_leaf == 0 && !topology.rails && topology.links.empty() && (reader.has("oversubscription") || reader.has("spines")))
    problems.add(node.where, "'nodes_per_leaf' is missing: without it one switch joins all nodes");
  reader.finish();
  return topology;
}

}  // namespace shardsim
