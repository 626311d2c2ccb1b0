// SPDX-License-Identifier: Apache-2.0
#include "sim/config/node_check.hpp"

#include <fmt/format.h>

#include "sim/base/units_text.hpp"

namespace shardsim {
namespace {

/// Bytes of the UTF-8 character at the start of `text`, 0 if there is none: no overlong forms, no surrogates, at most U+10FFFF (RFC 3629).
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

bool is_control(unsigned char byte) { return (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F; }

}  // namespace

Where PlaceFinder::at(std::size_t offset) {
  for (; offset_ < offset && offset_ < source_->text.size(); ++offset_)
    if (source_->text[offset_] == '\n') ++line_, line_start_ = offset_ + 1;
  return {source_, line_, static_cast<int>(offset_ - line_start_) + 1};
}

Problems check_text(const std::shared_ptr<const Source>& source, const ReadLimits& limits) {
  Problems problems;
  if (source->text.size() > limits.bytes) {
    problems.add({source, 1, 1}, "the text is larger than " + to_text(Bytes{static_cast<std::int64_t>(limits.bytes)}));
    return problems;
  }
  const std::string_view text = source->text;
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const std::size_t length = is_control(byte) ? 0 : utf8_length(text.substr(at));
    if (length == 0) {
      problems.add(PlaceFinder(source).at(at),
                   fmt::format("not a text: byte 0x{:02x} is {}", byte, is_control(byte) ? "a control character" : "not UTF-8"));
      return problems;
    }
    at += length;
  }
  return problems;
}

}  // namespace shardsim
