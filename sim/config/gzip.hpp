// SPDX-License-Identifier: Apache-2.0
// Files that were compressed with gzip, as the PyTorch profiler writes its traces.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace shardsim {

/// Starts with gzip's two bytes.
[[nodiscard]] bool is_gzip(std::string_view text);

/// The decompressed text of up to `most` bytes; an error is what is wrong: cut or damaged data, or more than `most`.
[[nodiscard]] tl::expected<std::string, std::string> unzipped(std::string_view compressed, std::size_t most);

}  // namespace shardsim
