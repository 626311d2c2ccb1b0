// SPDX-License-Identifier: Apache-2.0
#include "studies/sweep/shard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "sim/base/problem.hpp"

namespace shardsim {

Shard parse_shard(const std::string& text) {
  const char* const end = text.data() + text.size();
  std::uint64_t index = 0, count = 0;
  const auto first = std::from_chars(text.data(), end, index);
  const bool slash = first.ec == std::errc{} && first.ptr != end && *first.ptr == '/';
  const auto second = slash ? std::from_chars(first.ptr + 1, end, count) : first;
  constexpr std::uint64_t most_shards = 1 << 20;
  if (!slash || second.ec != std::errc{} || second.ptr != end || index < 1 || index > count || count > most_shards)
    throw InputError(fmt::format("--shard: {} is not a shard: 2/16 is the second of sixteen", in_quotes(text)));
  return {index - 1, count};
}

Shard shard_of(const Environment& environment) {
  Shard shard;
  if (const auto task = array_task_of(environment))
    shard = {static_cast<std::uint64_t>(task->index), static_cast<std::uint64_t>(task->count)};
  if (const auto launch = launch_of(environment)) {
    const auto ranks = static_cast<std::uint64_t>(launch->ranks);
    shard = {shard.index * ranks + static_cast<std::uint64_t>(launch->rank), shard.count * ranks};
  }
  return shard;
}

std::uint64_t block_size(std::uint64_t rows, std::uint64_t shards) {
  constexpr std::uint64_t most = 16, blocks_a_shard = 8;
  return std::clamp<std::uint64_t>(rows / shards / blocks_a_shard, 1, most);
}

}  // namespace shardsim
