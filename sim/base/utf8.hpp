// SPDX-License-Identifier: Apache-2.0
// What of a text is UTF-8: names of files and devices need not be.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace shardsim {

/// Bytes of the UTF-8 character at the start of `text`, 0 if there is none: no overlong forms, no surrogates, at most U+10FFFF (RFC 3629).
[[nodiscard]] std::size_t utf8_length(std::string_view text);

/// A path as it may stand at the start of a line: printable(), on one line, and not a command to a CI runner that reads it ("::error::").
[[nodiscard]] std::string shown_path(std::string_view path);

}  // namespace shardsim
