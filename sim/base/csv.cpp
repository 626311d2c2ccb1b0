// SPDX-License-Identifier: Apache-2.0
#include "sim/base/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "sim/base/utf8.hpp"

namespace shardsim {

std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  if (const auto* text = value.as<std::string>()) return *text;
  return value.line();
}

namespace {

/// Whether a spreadsheet would take the text for a formula. Negative numbers are numbers.
bool is_formula(std::string_view text) {
  if (text.empty() || std::string_view("=+-@\t\r").find(text.front()) == std::string_view::npos) return false;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error != std::errc{} || end != text.data() + text.size();
}

/// What is not UTF-8, as \xNN: the rest of the table stays readable.
std::string as_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    out += length > 0 ? std::string(text.substr(0, length)) : fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    text.remove_prefix(std::max<std::size_t>(1, length));
  }
  return out;
}

}  // namespace

std::string csv_row(std::span<const std::string> fields) {
  std::string out;
  for (const std::string& given : fields) {
    if (&given != fields.data()) out += ',';
    const std::string field = (is_formula(given) ? "'" : "") + as_utf8(given);
    if (field.find_first_of(",\"\r\n") == std::string::npos) {
      out += field;
      continue;
    }
    out += '"';
    for (char c : field) {
      if (c == '"') out += '"';
      out += c;
    }
    out += '"';
  }
  return out + "\n";
}

}  // namespace shardsim
