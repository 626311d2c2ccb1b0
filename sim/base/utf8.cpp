// SPDX-License-Identifier: Apache-2.0
#include "sim/base/utf8.hpp"

#include "sim/base/problem.hpp"

namespace shardsim {

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned lead = byte(0), second = byte(1);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const bool bad = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F);
    return !bad && continues(1) && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const bool bad = (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
    return !bad && continues(1) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

std::string shown_path(std::string_view path) {
  std::string shown = printable(path, std::string_view::npos);
  if (const std::size_t colons = shown.find("::"); colons != std::string::npos && shown.find_first_not_of(' ') == colons)
    shown.insert(0, "./");
  for (std::size_t at = shown.find("##["); at != std::string::npos; at = shown.find("##[", at)) shown.replace(at, 3, "# #[");
  return shown;
}

}  // namespace shardsim
