// SPDX-License-Identifier: Apache-2.0
#include "sim/config/node.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

std::string what_is(const ConfigNode& node) {
  switch (node.kind) {
    case ConfigNode::Kind::null:
      return "nothing";
    case ConfigNode::Kind::list:
      return "a list";
    case ConfigNode::Kind::map:
      return "a map";
    case ConfigNode::Kind::scalar:
      return node.quoted ? "the text " + in_quotes(node.text) : in_quotes(node.text);
  }
  return "?";
}

std::nullopt_t refuse(const ConfigNode& node, Problems& problems, const std::string& expected) {
  problems.add(node.where, fmt::format("expected {}, got {}", expected, what_is(node)));
  return std::nullopt;
}

bool plain(const ConfigNode& node) { return node.kind == ConfigNode::Kind::scalar && !node.quoted; }

template <class Number>
std::string range(std::string_view kind, Number min, Number max) {
  const bool below = min > std::numeric_limits<Number>::lowest(), above = max < std::numeric_limits<Number>::max();
  if (below && above) return fmt::format("{} from {} to {}", kind, min, max);
  if (below) return fmt::format("{} of at least {}", kind, min);
  if (above) return fmt::format("{} of at most {}", kind, max);
  return std::string(kind);
}

/// The whole of the text as a number; from_chars knows no locale.
template <class Number>
std::optional<Number> number_from(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// A whole number, also as configurations write large ones: 5e8.
std::optional<std::int64_t> whole_from(std::string_view text) {
  if (const auto number = number_from<std::int64_t>(text)) return number;
  if (text.find_first_of("eE") == std::string_view::npos) return std::nullopt;
  const auto number = number_from<double>(text);
  constexpr double exact = 9007199254740992;  // 2^53: beyond it a double skips whole numbers
  if (!number || std::abs(*number) > exact || *number != std::trunc(*number)) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

template <class Q>
std::optional<Q> as_quantity(const ConfigNode& node, Problems& problems, Parsed<Q> (*parse)(std::string_view), const char* example) {
  if (node.kind != ConfigNode::Kind::scalar) return refuse(node, problems, fmt::format("a quantity such as '{}'", example));
  auto [value, error] = parse(node.text);
  if (!value) problems.add(node.where, std::move(error), {fmt::format("for example: {}", example)});
  return value;
}

}  // namespace

const ConfigNode* ConfigNode::find(std::string_view key) const {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.key == key; });
  return found == entries.end() ? nullptr : &found->value;
}

std::optional<std::string> as_text(const ConfigNode& node, Problems& problems) {
  if (node.kind != ConfigNode::Kind::scalar) return refuse(node, problems, "text");
  const auto is_control = [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F; };
  if (std::any_of(node.text.begin(), node.text.end(), is_control)) return refuse(node, problems, "text without control characters");
  return node.text;
}

std::optional<bool> as_boolean(const ConfigNode& node, Problems& problems) {
  if (plain(node) && (node.text == "true" || node.text == "True" || node.text == "TRUE")) return true;
  if (plain(node) && (node.text == "false" || node.text == "False" || node.text == "FALSE")) return false;
  return refuse(node, problems, "true or false");
}

std::optional<std::int64_t> as_integer(const ConfigNode& node, Problems& problems, std::int64_t min, std::int64_t max) {
  const auto number = plain(node) ? whole_from(node.text) : std::nullopt;
  if (number && *number >= min && *number <= max) return number;
  return refuse(node, problems, range("a whole number", min, max));
}

std::optional<double> as_number(const ConfigNode& node, Problems& problems, double min, double max) {
  const auto number = plain(node) ? number_from<double>(node.text) : std::nullopt;
  if (number && std::isfinite(*number) && *number >= min && *number <= max) return number;
  return refuse(node, problems, range("a number", min, max));
}

std::optional<Bytes> as_bytes(const ConfigNode& node, Problems& problems) { return as_quantity(node, problems, parse_bytes, "25 MiB"); }
std::optional<ByteRate> as_byte_rate(const ConfigNode& node, Problems& problems) {
  return as_quantity(node, problems, parse_byte_rate, "400 Gbit/s");
}
std::optional<FlopRate> as_flop_rate(const ConfigNode& node, Problems& problems) {
  return as_quantity(node, problems, parse_flop_rate, "989 TFLOP/s");
}
std::optional<Seconds> as_seconds(const ConfigNode& node, Problems& problems) { return as_quantity(node, problems, parse_seconds, "5 us"); }

}  // namespace shardsim
