// SPDX-License-Identifier: Apache-2.0
#include "reports/html/markup.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/utf8.hpp"

namespace shardsim {

std::string markup(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length != 1) {
      out += length > 1 ? std::string(text.substr(0, length)) : fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
      text.remove_prefix(std::max<std::size_t>(1, length));
      continue;
    }
    const char c = text.front();
    text.remove_prefix(1);
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\n':
        out += "&#10;";
        break;
      case '\t':
        out += "&#9;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
    }
  }
  return out;
}

}  // namespace shardsim
