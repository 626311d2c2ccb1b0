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
#include "strategies/options.hpp"

namespace shardsim {

enum class Semantics : std::uint8_t { framework, textbook };

struct StrategyChoice {
  std::string name = "fsdp2";
  Semantics semantics = Semantics::framework;
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

/// One row of the table of strategies.
struct StrategyInfo {
  std::string name{};
  std::string summary{};  ///< one sentence
  std::string library{};  ///< what `semantics: framework` models, with its version
  std::vector<OptionSpec> options{};
};

[[nodiscard]] const std::vector<StrategyInfo>& strategies();
[[nodiscard]] const StrategyInfo* find_strategy(std::string_view name);

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
