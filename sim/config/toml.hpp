// SPDX-License-Identifier: Apache-2.0
// Reads TOML (toml.io, version 1.0) into the same positioned tree as YAML and JSON.
#pragma once

#include "sim/config/node.hpp"

namespace shardsim {

/// Tables, arrays of tables, dotted and quoted keys, all strings, numbers, booleans, arrays and inline tables. Dates stay text.
/// Keys defined twice, values that are no TOML and the limits exceeded are problems; reading stops at the first.
[[nodiscard]] Result<ConfigNode> read_toml(const Source& source, const ReadLimits& limits = {});

}  // namespace shardsim
