// SPDX-License-Identifier: Apache-2.0
#include "reports/text.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>

#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

constexpr std::size_t least_room = 20;  // beside a label: less breaks a sentence into single words
constexpr std::size_t below_indent = 6;

std::size_t width_of_reports = line_width;

}  // namespace

std::size_t text_width() { return width_of_reports; }
void narrow_to(std::size_t columns) { width_of_reports = std::clamp(columns, least_line_width, line_width); }

std::size_t terminal_columns(int descriptor) {
  if (const char* set = std::getenv("COLUMNS")) {
    const std::string_view text(set);
    std::size_t columns = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), columns);
    if (error == std::errc{} && end == text.data() + text.size() && columns > 0) return columns;
  }
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : line_width;
}

std::size_t columns(std::string_view text) {
  // Every byte but the continuation bytes 10xxxxxx begins a character.
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string percentage(double share) { return fmt::format("{:.1f} %", 100 * share); }

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

std::string wrapped(std::string_view unsafe, std::size_t indent, std::size_t at) {
  const std::string clean = printable(unsafe, std::string_view::npos);  // names of the user may hold anything
  std::string_view text = clean;
  std::string out;
  bool first = true;
  while (!text.empty()) {
    const std::string_view word = take_word(text, text_width() - indent);
    const std::size_t width = columns(word);
    if (!first && at + 1 + width > text_width()) {
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

std::string beside(std::string left, std::string_view text, std::size_t column) {
  const bool room = column + least_room <= text_width();
  if (room && columns(left) + 2 <= column) return pad_right(std::move(left), column) + wrapped(text, column, column);
  const std::size_t indent = room ? column : below_indent;
  return std::move(left) + "\n" + std::string(indent, ' ') + wrapped(text, indent, indent);
}

std::string pad_right(std::string text, std::size_t width) {
  const std::size_t have = columns(text);
  return have < width ? std::move(text) + std::string(width - have, ' ') : text;
}

std::string pad_left(std::string text, std::size_t width) {
  const std::size_t have = columns(text);
  return have < width ? std::string(width - have, ' ') + text : text;
}

namespace {

using Cells = std::vector<std::string>;

std::vector<std::size_t> widths_of(const TextGrid& grid) {
  std::vector<std::size_t> widths;
  for (const std::string& title : grid.header) widths.push_back(columns(title));
  for (const Cells& row : grid.rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  return widths;
}

std::string as_line(const Cells& cells, const TextGrid& grid, const std::vector<std::size_t>& widths, std::size_t gap) {
  std::string out;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) out += std::string(gap, ' ');
    const bool to_right = i < grid.right.size() && grid.right[i];
    out += to_right ? pad_left(cells[i], widths[i]) : pad_right(cells[i], widths[i]);
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

/// "Strategy fsdp2", and below it "Step 1.62 s, Peak 24.97 GiB, Fits yes": no cell is broken unless it is wider than the screen.
std::string as_list(const Cells& cells, const Cells& header) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (cells[i].empty()) continue;
    const std::string cell = header[i].empty() ? cells[i] : header[i] + " " + cells[i];
    if (i == 0) {
      out = wrapped(cell, 2, 0);
      at = text_width();  // what follows stands on lines of its own
    } else if (at + 2 + columns(cell) + 1 > text_width()) {
      out += (at == text_width() ? "\n  " : ",\n  ") + wrapped(cell, 2, 2);
      at = 2 + columns(cell);
    } else {
      out += ", " + cell;
      at += 2 + columns(cell);
    }
  }
  return out + "\n";
}

}  // namespace

std::string TextGrid::text() const {
  TextGrid clean = *this;
  for (Cells& row : clean.rows)
    for (std::string& cell : row) cell = printable(cell, std::string_view::npos);
  const std::vector<std::size_t> widths = widths_of(clean);
  const std::size_t cells = std::accumulate(widths.begin(), widths.end(), std::size_t{}), gaps = widths.empty() ? 0 : widths.size() - 1;
  std::string out;
  if (cells + gaps > text_width() && text_width() < line_width) {
    for (const Cells& row : clean.rows) out += as_list(row, header);
    return out;
  }
  const std::size_t gap = cells + 2 * gaps > text_width() ? 1 : 2;
  out = as_line(header, *this, widths, gap);
  for (const Cells& row : clean.rows) out += as_line(row, *this, widths, gap);
  return out;
}

}  // namespace shardsim
