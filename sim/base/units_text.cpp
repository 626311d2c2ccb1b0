// SPDX-License-Identifier: Apache-2.0
#include "sim/base/units_text.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};

constexpr double binary(int power) { return static_cast<double>(std::int64_t{1} << (10 * power)); }

constexpr std::array<Unit, 11> byte_units{{{"B", 1},
                                           {"kB", 1e3},
                                           {"MB", 1e6},
                                           {"GB", 1e9},
                                           {"TB", 1e12},
                                           {"PB", 1e15},
                                           {"KiB", binary(1)},
                                           {"MiB", binary(2)},
                                           {"GiB", binary(3)},
                                           {"TiB", binary(4)},
                                           {"PiB", binary(5)}}};
constexpr std::array<Unit, 22> byte_rate_units{{{"bit/s", 1. / 8},
                                                {"kbit/s", 1e3 / 8},
                                                {"Mbit/s", 1e6 / 8},
                                                {"Gbit/s", 1e9 / 8},
                                                {"Tbit/s", 1e12 / 8},
                                                {"B/s", 1},
                                                {"kB/s", 1e3},
                                                {"MB/s", 1e6},
                                                {"GB/s", 1e9},
                                                {"TB/s", 1e12},
                                                {"KiB/s", binary(1)},
                                                {"MiB/s", binary(2)},
                                                {"GiB/s", binary(3)},
                                                {"TiB/s", binary(4)},
                                                // As data sheets and ethtool write them; a small b is a bit.
                                                {"kb/s", 1e3 / 8},
                                                {"Mb/s", 1e6 / 8},
                                                {"Gb/s", 1e9 / 8},
                                                {"Tb/s", 1e12 / 8},
                                                {"kbps", 1e3 / 8},
                                                {"Mbps", 1e6 / 8},
                                                {"Gbps", 1e9 / 8},
                                                {"Tbps", 1e12 / 8}}};
constexpr std::array<Unit, 6> flop_rate_units{
    {{"FLOP/s", 1}, {"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}, {"EFLOP/s", 1e18}}};
constexpr std::array<Unit, 7> time_units{{{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}}};

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// A number and the unit after it.
struct Measure {
  double number = 0;
  std::optional<std::int64_t> whole;  ///< where the number was written as an integer
  const Unit* unit = nullptr;
};

std::string known_units(std::span<const Unit> units) {
  std::string list;
  for (const Unit& unit : units) list += (list.empty() ? "" : ", ") + std::string(unit.name);
  return list;
}

std::string unknown_unit(std::string_view word, std::span<const Unit> units) {
  std::vector<std::string> names;
  for (const Unit& unit : units) names.emplace_back(unit.name);
  const std::string near = nearest(word, names);
  return fmt::format("unknown unit {};{} known units: {}", in_quotes(word), near.empty() ? "" : " did you mean " + in_quotes(near) + "?",
                     known_units(units));
}

Parsed<Measure> parse_measure(std::string_view text, std::span<const Unit> units) {
  text = trim(text);
  const char* const end = text.data() + text.size();
  Measure measure;
  const auto [after, error] = std::from_chars(text.data(), end, measure.number);
  if (error == std::errc::result_out_of_range) return {{}, in_quotes(text) + " is out of range"};
  if (error != std::errc{})
    return {{}, fmt::format("expected a number and a unit, got {}; known units: {}", in_quotes(text), known_units(units))};
  if (!std::isfinite(measure.number)) return {{}, in_quotes(text) + " is not a finite quantity"};
  if (std::signbit(measure.number)) return {{}, in_quotes(text) + " is negative"};
  std::int64_t whole = 0;
  if (const auto exact = std::from_chars(text.data(), after, whole); exact.ec == std::errc{} && exact.ptr == after) measure.whole = whole;

  const std::string_view word = trim({after, static_cast<std::size_t>(end - after)});
  if (word.empty()) return {{}, fmt::format("{} has no unit; known units: {}", in_quotes(text), known_units(units))};
  for (const Unit& unit : units)
    if (unit.name == word) measure.unit = &unit;
  if (!measure.unit) return {{}, unknown_unit(word, units)};
  return {measure, {}};
}

template <class Q>
Parsed<Q> parse_quantity(std::string_view text, std::span<const Unit> units) {
  const auto [measure, error] = parse_measure(text, units);
  if (!measure) return {{}, error};
  const double base = measure->number * measure->unit->scale;
  if (!std::isfinite(base)) return {{}, in_quotes(text) + " is out of range"};
  return {Q{base}, {}};
}

/// "1.24", "35.0", "412": three significant digits of a number from 1 to 999.
std::string three_digits(double number) {
  const double size = std::abs(number);
  return fmt::format("{:.{}f}", number, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

/// The largest unit of which there is at least one once rounded; `units` ascend. `rounded_up`: what prints as 1 in the next unit.
const Unit& fitting(double base, std::span<const Unit> units, double rounded_up) {
  const Unit* best = &units.front();
  for (const Unit& unit : units)
    if (std::abs(base) >= unit.scale * rounded_up) best = &unit;
  return *best;
}

std::string bytes_text(Bytes bytes, std::span<const Unit> units) {
  const auto base = static_cast<double>(bytes.value());
  const Unit& unit = fitting(base, units, 0.999995);
  if (unit.scale == 1) return fmt::format("{} {}", bytes.value(), unit.name);
  return fmt::format("{:.2f} {}", base / unit.scale, unit.name);
}

}  // namespace

Parsed<Bytes> parse_bytes(std::string_view text) {
  const auto [measure, error] = parse_measure(text, byte_units);
  if (!measure) return {{}, error};
  if (measure->whole) {
    std::int64_t product = 0;
    if (!__builtin_mul_overflow(*measure->whole, static_cast<std::int64_t>(measure->unit->scale), &product)) return {Bytes{product}, {}};
    return {{}, in_quotes(text) + " is out of range"};
  }
  const double base = std::round(measure->number * measure->unit->scale);
  if (!(base < 9.2e18)) return {{}, in_quotes(text) + " is out of range"};
  return {Bytes{static_cast<std::int64_t>(base)}, {}};
}

Parsed<ByteRate> parse_byte_rate(std::string_view text) { return parse_quantity<ByteRate>(text, byte_rate_units); }
Parsed<FlopRate> parse_flop_rate(std::string_view text) { return parse_quantity<FlopRate>(text, flop_rate_units); }
Parsed<Seconds> parse_seconds(std::string_view text) { return parse_quantity<Seconds>(text, time_units); }

std::string to_text(Bytes bytes) {
  static constexpr std::array<Unit, 6> units{
      {{"B", 1}, {"KiB", binary(1)}, {"MiB", binary(2)}, {"GiB", binary(3)}, {"TiB", binary(4)}, {"PiB", binary(5)}}};
  return bytes_text(bytes, units);
}

std::string to_text_decimal(Bytes bytes) { return bytes_text(bytes, std::span(byte_units).first(6)); }

std::string to_text(ByteRate rate) {
  if (rate.base() == 0) return "0 B/s";
  const Unit& unit = fitting(rate.base(), std::span(byte_rate_units).subspan(5, 5), 0.9995);
  return three_digits(rate.base() / unit.scale) + " " + std::string(unit.name);
}

std::string to_text(FlopRate rate) {
  if (rate.base() == 0) return "0 FLOP/s";
  const Unit& unit = fitting(rate.base(), flop_rate_units, 0.9995);
  return three_digits(rate.base() / unit.scale) + " " + std::string(unit.name);
}

std::string to_text(Seconds time) {
  if (time.base() == 0) return "0 s";  // nothing has no unit that fits; "0.00 ns" would claim a resolution
  // Minutes and more only where seconds become hard to read: 90 s is "90.0 s".
  const Unit& unit =
      std::abs(time.base()) < 120 ? fitting(time.base(), std::span(time_units).first(4), 0.9995) : fitting(time.base(), time_units, 0.9995);
  return three_digits(time.base() / unit.scale) + " " + std::string(unit.name);
}

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  const std::size_t first = digits.front() == '-' ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

}  // namespace shardsim
