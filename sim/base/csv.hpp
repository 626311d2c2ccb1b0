// SPDX-License-Identifier: Apache-2.0
// Comma-separated values as RFC 4180 has them, with bare line feeds.
#pragma once

#include <span>
#include <string>

#include "sim/base/json_value.hpp"

namespace shardsim {

/// A scalar as the text of a field: numbers as JSON writes them, null empty.
[[nodiscard]] std::string csv_field(const Json& value);

/// The fields with commas between them and a line feed; quoted where they hold a comma, a quote or a line break.
[[nodiscard]] std::string csv_row(std::span<const std::string> fields);

}  // namespace shardsim
