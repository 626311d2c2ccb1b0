// SPDX-License-Identifier: Apache-2.0
// What a strategy is, and the table of those there are. A strategy is one file: hooks that the training loop (training_loop.hpp) calls,
// and an entry in the table of strategy.cpp.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/model.hpp"
#include "sim/schedule/schedule.hpp"
#include "strategies/library_version.hpp"
#include "strategies/options.hpp"

namespace shardsim {

enum class Semantics : std::uint8_t { framework, textbook };

struct StrategyChoice {
  std::string name = "fsdp2";
  Semantics semantics = Semantics::framework;
  std::string version{};  ///< of the library, for its `semantics: framework`; empty: the newest that is recorded
  Options options{};
};

/// Everything a Schedule depends on. The model outlives the job.
struct Job {
  const Model* model = nullptr;
  Training training{};
  StrategyChoice strategy{};
  std::int64_t world_size = 1;
  std::int64_t gpus_per_node = 8;
  std::int64_t rank = 0;  ///< whose program is emitted; rank 0 holds the most where shards are uneven
};

/// Whose code runs a strategy: another library is another training loop.
enum class Library : std::uint8_t { pytorch, deepspeed, megatron, olmo_core };

/// Who writes its checkpoints, and how.
enum class CheckpointWriter : std::uint8_t {
  distributed_checkpoint,  ///< torch.distributed.checkpoint: each rank its shards
  consolidated,            ///< gathered to rank 0 before torch.save
  deepspeed,               ///< a file of optimizer states a rank, model files beside them
};

/// Which of Muon's distributed variants find what they need: whole matrices on every rank, or shards of rows.
enum class MuonSupport : std::uint8_t { none, whole_matrices, row_shards };

/// What of the states the library can keep in host memory.
enum class OffloadUnit : std::uint8_t { none, optimizer, parameters_and_optimizer };

/// Options that a planner may set, each a list of "option=value", for a cluster of so many nodes.
using OptionSets = std::vector<std::vector<std::string>>;

/// What holds for a strategy in every job. Consumers ask these facts, never a strategy's name.
struct StrategyFacts {
  Library library = Library::pytorch;
  int stage = 0;                ///< what is sharded, as ZeRO counts: 0 nothing, 1 optimizer states, 2 gradients too, 3 parameters too
  bool names_stage = false;     ///< the papers' name for its stage
  bool overlaps = true;         ///< reductions run while backward does, in the textbook's schedule
  std::string superseded_by{};  ///< the strategy that its library recommends in its place
  CheckpointWriter checkpoints = CheckpointWriter::distributed_checkpoint;
  bool checkpoints_rows = false;  ///< its checkpoints cut each parameter along dimension 0, however its shards lie
  MuonSupport muon = MuonSupport::none;
  OffloadUnit offload = OffloadUnit::none;
  bool on_one_rank = true;    ///< people run it on a single GPU
  bool with_adapters = true;  ///< runs LoRA adapters over frozen weights
  /// Replicas of its shard group; none: the option `replicate`, or one.
  std::function<std::int64_t(const Job&)> replicas{};
  /// Beside its defaults; on several nodes also those that shard inside a node.
  std::function<OptionSets(std::int64_t nodes, std::int64_t gpus_per_node)> variants{};
};

/// One row of the table of strategies.
struct StrategyInfo {
  std::string name{};
  std::string summary{};            ///< one sentence
  std::string stack{};              ///< what it is usually run by: a name of scenarios/stacks
  std::string library{};            ///< what `semantics: framework` models; "{}" is where its version stands
  std::vector<Release> releases{};  ///< that changed it, oldest first
  std::vector<OptionSpec> options{};
  StrategyFacts facts{};
};

[[nodiscard]] const std::vector<StrategyInfo>& strategies();
[[nodiscard]] const StrategyInfo* find_strategy(std::string_view name);
/// Of a strategy that is in the table; std::logic_error otherwise.
[[nodiscard]] const StrategyFacts& facts_of(std::string_view strategy);

/// The job's library is of this release or a newer one.
[[nodiscard]] inline bool since(const Job& job, std::string_view version) {
  return job.strategy.version.empty() || !older(job.strategy.version, version);
}

/// Dtype on the wire of gradient reductions: what the scenario says, else the library's default.
[[nodiscard]] DType reduction_dtype(const Job& job);

/// Combinations that the library forbids, and shard groups that do not divide the world, as problems; options without effect as warnings
/// in the schedule.
[[nodiscard]] Problems check(const Job& job);

/// The Schedule of one optimizer step. `check(job)` must be empty.
[[nodiscard]] Schedule emit(const Job& job);

/// What the papers count, written from the papers and not from the schedules (textbook.cpp).
struct Textbook {
  Bytes sent_per_rank{};                                ///< per optimizer step
  Bytes parameters{}, gradients{}, optimizer_states{};  ///< per rank
};
[[nodiscard]] Textbook textbook(const Job& job);

}  // namespace shardsim
