// SPDX-License-Identifier: Apache-2.0
#include "reports/text.hpp"

#include <algorithm>

namespace shardsim {

std::size_t columns(std::string_view text) {
  // Every byte but the continuation bytes 10xxxxxx begins a character.
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

namespace {

/// The next word of `text`, or as much of it as fits a line; taken off its front.
std::string_view take_word(std::string_view& text, std::size_t most) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  if (columns(word) > most && most > 0) {
    const std::string_view part = word.substr(0, most);  // too long for any line: an identifier or a path, so bytes are columns
    text.remove_prefix(most);
    return part;
  }
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t indent, std::size_t at) {
  std::string out;
  bool first = true;
  while (!text.empty()) {
    const std::string_view word = take_word(text, line_width - indent);
    const std::size_t width = columns(word);
    if (!first && at + 1 + width > line_width) {
      out += "\n" + std::string(indent, ' ');
      at = indent;
    } else if (!first) {
      out += ' ';
      ++at;
    }
    out += word;
    at += width;
    first = false;
  }
  return out;
}

std::string pad_right(std::string text, std::size_t width) {
  const std::size_t have = columns(text);
  return have < width ? std::move(text) + std::string(width - have, ' ') : text;
}

std::string pad_left(std::string text, std::size_t width) {
  const std::size_t have = columns(text);
  return have < width ? std::string(width - have, ' ') + text : text;
}

std::string TextGrid::text() const {
  std::vector<std::size_t> widths;
  for (const std::string& title : header) widths.push_back(columns(title));
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));

  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) out += "  ";
      const bool to_right = i < right.size() && right[i];
      out += to_right ? pad_left(cells[i], widths[i]) : pad_right(cells[i], widths[i]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
  };
  std::string out = line(header);
  for (const auto& row : rows) out += line(row);
  return out;
}

}  // namespace shardsim
