// SPDX-License-Identifier: Apache-2.0
// Plain text that fits a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace shardsim {

inline constexpr std::size_t line_width = 80;        ///< of reports, unless the terminal is narrower
inline constexpr std::size_t least_line_width = 40;  ///< what still holds a label and its value

/// Columns to write in; line_width until narrow_to() says otherwise.
[[nodiscard]] std::size_t text_width();
/// Reports are to fit a terminal of so many columns: between least_line_width and line_width. Not to be called while reports are written.
void narrow_to(std::size_t columns);
/// Columns of the reader's screen: what COLUMNS says, else the terminal behind `descriptor`, else line_width.
[[nodiscard]] std::size_t terminal_columns(int descriptor);

/// Columns that UTF-8 `text` takes, for text without wide or combining characters.
[[nodiscard]] std::size_t columns(std::string_view text);

/// `text` broken at spaces into lines that end before text_width(). The first line starts at column `at`, the others at `indent`.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t indent, std::size_t at);

/// 0.4217 as "42.2 %".
[[nodiscard]] std::string percentage(double share);

/// `text` at column `column` behind what stands on the line already (`left`), or below it where too little room is left.
[[nodiscard]] std::string beside(std::string left, std::string_view text, std::size_t column);

/// Fills up with spaces to `width` columns, on the right or on the left.
[[nodiscard]] std::string pad_right(std::string text, std::size_t width);
[[nodiscard]] std::string pad_left(std::string text, std::size_t width);

/// Rows under a header, two spaces between columns (one where two are too wide); no space at the end of a line. A terminal too narrow for
/// that gets each row as a list of its cells with their headers.
struct TextGrid {
  std::vector<std::string> header;
  std::vector<bool> right;  ///< by column: aligned to the right
  std::vector<std::vector<std::string>> rows;
  [[nodiscard]] std::string text() const;
};

}  // namespace shardsim
