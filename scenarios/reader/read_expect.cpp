// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>

#include "scenarios/reader/reading.hpp"
#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

constexpr double any = std::numeric_limits<double>::max();

/// What a figure of `simulate` is, as its name says: bytes, seconds, or a number that has no unit to write.
enum class Dimension : std::uint8_t { bytes, seconds, number };

Dimension dimension_of(std::string_view metric) {
  if (metric.find("bytes") != std::string_view::npos) return Dimension::bytes;
  return metric.ends_with("_s") ? Dimension::seconds : Dimension::number;
}

struct Allowed {
  const char* kind;
  const char* example;
};
Allowed allowed(Dimension dimension) {
  switch (dimension) {
    case Dimension::bytes:
      return {"a number of bytes", "80 GiB, or 85899345920"};
    case Dimension::seconds:
      return {"a time", "1.5 s, or 1.5"};
    case Dimension::number:
      break;
  }
  return {"a number", "0.4"};
}

/// A quantity of the metric's dimension in base units; nothing if the text is not one.
std::optional<double> quantity(std::string_view text, Dimension dimension) {
  if (dimension == Dimension::bytes)
    if (const auto bytes = parse_bytes(text).value) return static_cast<double>(bytes->value());
  if (dimension == Dimension::seconds)
    if (const auto time = parse_seconds(text).value) return time->base();
  return std::nullopt;
}

std::optional<double> read_bound(MapReader& reader, std::string_view key, const std::string& metric) {
  const ConfigNode* node = reader.find(key);
  if (!node) return std::nullopt;
  const Dimension dimension = dimension_of(metric);
  if (node->kind == ConfigNode::Kind::scalar)
    if (const auto base = quantity(node->text, dimension)) return base;
  Problems problems;
  const auto number = as_number(*node, problems, -any, any);
  const auto [kind, example] = allowed(dimension);
  if (!problems.empty())
    reader.problems().add(node->where, fmt::format("{} is {}: it cannot be compared with {}", metric, kind, in_quotes(node->text)),
                          {fmt::format("for example: {}", example)});
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
  expectation.at_most = read_bound(reader, "at_most", expectation.metric);
  expectation.at_least = read_bound(reader, "at_least", expectation.metric);
  expectation.baseline = read_bound(reader, "baseline", expectation.metric);
  if (reader.has("relative")) expectation.relative = reader.number("relative", 0, 0, any);
  expectation.absolute = read_bound(reader, "absolute", expectation.metric);
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
