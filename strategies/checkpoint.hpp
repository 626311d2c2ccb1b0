// SPDX-License-Identifier: Apache-2.0
// What a checkpoint of a job writes and reads: files and bytes of each rank, from the shards that its Schedule holds. Pure arithmetic.
//
//   dcp        torch.distributed.checkpoint: one file a rank; of what several ranks hold, the rank with the least planned so far writes
//              the only copy (_dedup_save_plans.py). Loading reads every saved chunk that overlaps a wanted one, whole (filesystem.py),
//              so that any world size can load. FSDP1 saves its SHARDED_STATE_DICT: parameters cut along dimension 0, as FSDP2's.
//   deepspeed  DeepSpeed's own (engine.py, _save_checkpoint, _save_zero_checkpoint): every rank its optimizer partition; below stage 3
//              rank 0 the 16-bit model, frozen parameters twice in stage 2 (frozen_param_fragments). Only the same world size can load.
//   full       rank 0 gathers everything and writes it alone (FULL_STATE_DICT, consolidate_state_dict); DeepSpeed's save_16bit_model
//              leaves the optimizer out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/schedule/checkpoint_report.hpp"
#include "strategies/strategy.hpp"

namespace shardsim {

/// The `checkpoint:` block of a scenario.
struct CheckpointRequest {
  std::optional<CheckpointFormat> format{};                     ///< empty: the library's own, see default_format
  std::optional<ByteRate> write_bandwidth{}, read_bandwidth{};  ///< of one node; empty: the profile's storage
  bool async = false;                                           ///< torch's async_save: training goes on when the state is in host memory
  std::optional<std::int64_t> load_world_size{};                ///< empty: as many ranks as saved
};

/// DeepSpeed's for its strategies, full for ZeroRedundancyOptimizer (its states must be consolidated), else dcp.
[[nodiscard]] CheckpointFormat default_format(const std::string& strategy);
/// Combinations that no library offers, as problems without a place.
[[nodiscard]] Problems check_checkpoint(const Job& job, const CheckpointRequest& request);

/// The same job on the ranks that load the checkpoint.
[[nodiscard]] Job loading_job(Job job, const CheckpointRequest& request);

/// A tensor of the state dict and how ranks share it.
struct SavedTensor {
  enum class Cut : std::uint8_t {
    whole,  ///< on every rank
    rows,   ///< ceil(d0 / parts) rows each (torch.chunk)
    each,   ///< ceil(elements / parts) elements each
    flat,   ///< a range of a flat buffer: part k holds [k * shard, (k + 1) * shard) of it
  };
  ParameterId parameter{};  ///< none for states that are not shaped like one (adafactor's)
  const char* state = "";   ///< "parameters", "master copy", "exp_avg" ...
  DType dtype = DType::fp32;
  std::int64_t elements = 0, columns = 1;
  Cut cut = Cut::whole;
  std::int64_t parts = 1, stride = 1;  ///< rank r holds part (r / stride) % parts
  std::int64_t start = 0, shard = 0;   ///< of `flat`: where the tensor starts in the buffer, and the length of a part
  bool host = false;                   ///< held in host memory (offload)
};

/// Elements [first, first + count) of a tensor, without padding.
struct SavedRange {
  std::int64_t first = 0, count = 0;
  auto operator<=>(const SavedRange&) const = default;
};
[[nodiscard]] SavedRange range_of(const SavedTensor& tensor, std::int64_t part);

/// Everything that a rank's state dict holds: parameters and optimizer states, in the order of the schedule. FSDP1's shards as it saves
/// them, along dimension 0; ZeroRedundancyOptimizer's as consolidated.
[[nodiscard]] std::vector<SavedTensor> state_dict(const Job& job, const Schedule& schedule, bool with_optimizer = true);

/// Bytes by rank.
using ByRank = std::vector<Bytes>;
/// What every rank holds before replicas are dropped.
[[nodiscard]] ByRank held_bytes(const std::vector<SavedTensor>& state, std::int64_t ranks);
/// What every rank writes under dcp.
[[nodiscard]] ByRank dcp_written(const std::vector<SavedTensor>& state, std::int64_t ranks);
/// What every one of `ranks` ranks reads under dcp to fill `wanted` from files of `saved`: whole chunks.
[[nodiscard]] ByRank dcp_read(const std::vector<SavedTensor>& saved, const std::vector<SavedTensor>& wanted, std::int64_t ranks);

/// The machine's part in it.
struct CheckpointMachine {
  std::int64_t gpus_per_node = 8;
  ByteRate write_per_node, read_per_node;
  ByteRate host_link;  ///< of one GPU
};

/// `loading`: the job on request.load_world_size ranks, with its schedule; the saving ones where the world stays.
[[nodiscard]] CheckpointReport checkpoint_report(const Job& saving, const Schedule& saved, const Job& loading, const Schedule& wanted,
                                                 const CheckpointRequest& request, const CheckpointMachine& machine);

}  // namespace shardsim
