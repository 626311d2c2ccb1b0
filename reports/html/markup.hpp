// SPDX-License-Identifier: Apache-2.0
// Text inside XML and HTML.
#pragma once

#include <string>
#include <string_view>

namespace shardsim {

/// `text` as an attribute or element content of XML, HTML and SVG alike. Control characters cannot stand in XML 1.0 at all and become '?';
/// line breaks and tabs are kept as references, since attributes would lose them.
[[nodiscard]] std::string markup(std::string_view text);

}  // namespace shardsim
