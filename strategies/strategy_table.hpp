// SPDX-License-Identifier: Apache-2.0
// How a strategy's file enters the table: one function a strategy, listed in strategy.cpp.
#pragma once

#include <functional>
#include <memory>

#include "strategies/hooks.hpp"

namespace shardsim {

struct StrategyEntry {
  StrategyInfo info{};
  /// Hooks of the library; none: only the textbook semantics exist.
  std::function<std::unique_ptr<Hooks>(Program&)> make{};
  /// What the library forbids (beyond the checks that all strategies share).
  std::function<void(const Job&, Problems&)> check{};
  /// One line: why the framework's traffic differs from the textbook's for this job; empty where it does not.
  std::function<std::string(const Job&)> differs_because{};
  /// Dtype on the wire of gradient reductions; none: training.precision's `reduce`, else that of the gradients.
  std::function<DType(const Job&)> reduction_dtype{};
  /// Options that have no effect in this job, as sentences.
  std::function<std::vector<std::string>(const Job&)> warnings{};
};

StrategyEntry naive_dp_strategy();
StrategyEntry ddp_strategy();
StrategyEntry zero_redundancy_strategy();
StrategyEntry zero1_strategy();
StrategyEntry zero2_strategy();
StrategyEntry zero3_strategy();
StrategyEntry mics_strategy();
StrategyEntry fsdp1_strategy();
StrategyEntry fsdp2_strategy();
StrategyEntry megatron_strategy();
StrategyEntry olmo_ddp_strategy();

/// The papers' schedule for any strategy (textbook_schedule.cpp).
[[nodiscard]] std::unique_ptr<Hooks> make_textbook(Program& program);

}  // namespace shardsim
