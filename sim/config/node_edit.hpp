// SPDX-License-Identifier: Apache-2.0
// Trees put together from others: a value at a dotted path, a map laid over a map.
#pragma once

#include <string_view>

#include "sim/config/node.hpp"

namespace shardsim {

/// Puts `value` at the dotted `path` ("training.micro_batch_size"), making maps on the way.
void put(ConfigNode& root, std::string_view path, const ConfigNode& value);

/// Lays `over` over `base`: maps merge, anything else is replaced, and null takes a key away.
void lay_over(ConfigNode& base, const ConfigNode& over);

/// Takes the key out of a map and returns its value; nothing where it is not there.
[[nodiscard]] std::optional<ConfigNode> take(ConfigNode& map, std::string_view key);

}  // namespace shardsim
