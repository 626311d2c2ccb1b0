// SPDX-License-Identifier: Apache-2.0
// Which rows of a sweep one process simulates, where several share it without a word between them.
#pragma once

#include <cstdint>
#include <string>

#include "calibrate/ranks/launch.hpp"

namespace shardsim {

struct Shard {
  std::uint64_t index = 0, count = 1;  ///< from 0

  [[nodiscard]] bool whole() const { return count == 1; }
};

/// "2/16" is the second of sixteen. Anything else is an InputError.
[[nodiscard]] Shard parse_shard(const std::string& text);
/// The rank among those of its launcher, the task among those of its job array, or both; the whole sweep where there is neither.
[[nodiscard]] Shard shard_of(const Environment& environment);

/// Positions that a process takes at once: enough that neighbours share their models, few enough that every shard gets some of each kind.
[[nodiscard]] std::uint64_t block_size(std::uint64_t rows, std::uint64_t shards);

}  // namespace shardsim
