// SPDX-License-Identifier: Apache-2.0
// What a checkpoint comes to, as reports show it. A value; strategies/checkpoint.hpp makes it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "sim/base/units.hpp"

namespace shardsim {

/// Files as torch.distributed.checkpoint writes them, as DeepSpeed does, or one file with everything.
enum class CheckpointFormat : std::uint8_t { dcp, deepspeed, full };
inline constexpr std::array<std::string_view, 3> checkpoint_formats{"dcp", "deepspeed", "full"};
[[nodiscard]] constexpr std::string_view name_of(CheckpointFormat format) { return checkpoint_formats[static_cast<std::size_t>(format)]; }

/// A checkpoint of one job. Bytes are payload; the pickled metadata beside them is small and not counted.
struct CheckpointReport {
  CheckpointFormat format = CheckpointFormat::dcp;
  bool async = false;
  std::int64_t files = 0;
  Bytes total;                     ///< of all files
  Bytes held;                      ///< by all ranks together: what is written without de-duplication
  Bytes written_min, written_max;  ///< by one rank
  double written_mean = 0;
  Seconds save;             ///< until the slowest node has written everything
  Seconds stall;            ///< of it, training stands still
  Bytes gathered_per_rank;  ///< full: sent by a rank to gather
  Bytes gpu_extra;          ///< full: the largest tensor, gathered
  Bytes host_per_node;      ///< staged in the memory of the first node
  std::int64_t load_world_size = 1;
  std::string cannot_load;       ///< why that world size cannot load it; empty: it can
  Bytes load_wanted, load_read;  ///< by all ranks together: what they need, what they read
  Bytes load_read_max;           ///< by one rank
  Seconds load;
};

}  // namespace shardsim
