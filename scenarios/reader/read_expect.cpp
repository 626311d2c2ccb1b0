// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "scenarios/reader/reading.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

constexpr double any = std::numeric_limits<double>::max();

/// "80 GiB", "400 Gbit/s", "989 TFLOP/s", "5 us" in base units; nothing if it is none of them.
std::optional<double> quantity(std::string_view text) {
  if (const auto bytes = parse_bytes(text).value) return static_cast<double>(bytes->value());
  if (const auto rate = parse_byte_rate(text).value) return rate->base();
  if (const auto rate = parse_flop_rate(text).value) return rate->base();
  if (const auto time = parse_seconds(text).value) return time->base();
  return std::nullopt;
}

std::optional<double> read_bound(MapReader& reader, std::string_view key) {
  const ConfigNode* node = reader.find(key);
  if (!node) return std::nullopt;
  if (node->kind == ConfigNode::Kind::scalar)
    if (const auto base = quantity(node->text)) return base;
  Problems problems;
  const auto number = as_number(*node, problems, -any, any);
  for (const Problem& problem : problems.list())
    reader.problems().add(problem.where, problem.message, {"a number or a quantity: 0.4, 80 GiB, 1.5 s"});
  return number;
}

Expectation read_expectation(const ConfigNode& node, Problems& problems) {
  Expectation expectation;
  expectation.where = node.where;
  MapReader reader(node, problems, "expectation");
  if (reader.require("metric")) expectation.metric = reader.text("metric", "");
  if (const ConfigNode* formula = reader.find("equals")) {
    expectation.equals = as_text(*formula, problems);
    expectation.equals_where = formula->where;
    if (formula->quoted) ++expectation.equals_where.column;  // past the quotation mark
  }
  expectation.at_most = read_bound(reader, "at_most");
  expectation.at_least = read_bound(reader, "at_least");
  expectation.baseline = read_bound(reader, "baseline");
  if (reader.has("relative")) expectation.relative = reader.number("relative", 0, 0, any);
  expectation.absolute = read_bound(reader, "absolute");
  reader.finish();

  const bool close_to = reader.has("equals") || reader.has("baseline");
  if (node.kind == ConfigNode::Kind::map && !close_to && !reader.has("at_most") && !reader.has("at_least"))
    problems.add(node.where, "nothing to compare with", {"one of: equals, baseline, at_most, at_least"});
  if (!close_to && (expectation.relative || expectation.absolute))
    problems.add(node.where, "a tolerance needs a value to be close to", {"one of: equals, baseline"});
  if (expectation.absolute && *expectation.absolute < 0) problems.add(reader.find("absolute")->where, "a tolerance cannot be negative");
  return expectation;
}

}  // namespace

std::vector<Expectation> read_expectations(const ConfigNode& list, Problems& problems) {
  std::vector<Expectation> expectations;
  if (list.kind != ConfigNode::Kind::list)
    problems.add(list.where, "expect must be a list", {"for example: - {metric: memory.peak_bytes, at_most: 80 GiB}"});
  for (const ConfigNode& item : list.items) expectations.push_back(read_expectation(item, problems));
  return expectations;
}

}  // namespace shardsim
