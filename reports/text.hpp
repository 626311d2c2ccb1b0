// SPDX-License-Identifier: Apache-2.0
// Plain text that fits a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace shardsim {

inline constexpr std::size_t line_width = 80;

/// Columns that UTF-8 `text` takes, for text without wide or combining characters.
[[nodiscard]] std::size_t columns(std::string_view text);

/// `text` broken at spaces into lines that end before line_width. The first line starts at column `at`, the others at `indent`.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t indent, std::size_t at);

/// Fills up with spaces to `width` columns, on the right or on the left.
[[nodiscard]] std::string pad_right(std::string text, std::size_t width);
[[nodiscard]] std::string pad_left(std::string text, std::size_t width);

/// Rows under a header, two spaces between columns; no space at the end of a line.
struct TextGrid {
  std::vector<std::string> header;
  std::vector<bool> right;                      ///< by column: aligned to the right
  std::vector<std::vector<std::string>> rows;
  [[nodiscard]] std::string text() const;
};

}  // namespace shardsim
