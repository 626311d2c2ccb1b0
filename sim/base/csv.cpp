// SPDX-License-Identifier: Apache-2.0
#include "sim/base/csv.hpp"

namespace shardsim {

std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  if (const auto* text = value.as<std::string>()) return *text;
  return value.line();
}

std::string csv_row(std::span<const std::string> fields) {
  std::string out;
  for (const std::string& field : fields) {
    if (&field != fields.data()) out += ',';
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
