// SPDX-License-Identifier: Apache-2.0
#include "sim/config/node_check.hpp"

#include <fmt/format.h>

#include "sim/base/units_text.hpp"
#include "sim/base/utf8.hpp"

namespace shardsim {
namespace {

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
