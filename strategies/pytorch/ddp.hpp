// SPDX-License-Identifier: Apache-2.0
// DistributedDataParallel for those that build on it: its hooks around an optimizer of one's own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strategies/shared/replicated.hpp"
#include "strategies/strategy_table.hpp"

namespace shardsim {

/// DDP's hooks. The process group's collectives run on the stream "process group" of the communicator "dp".
[[nodiscard]] std::unique_ptr<Hooks> make_ddp(Program& program, LocalUpdate update = {});

/// Parameters of each bucket, in the order in which buckets are launched. Source: reducer.cpp, rebuild_buckets.
[[nodiscard]] std::vector<std::vector<ParameterId>> ddp_buckets(const Job& job);
/// The same; buckets are rebuilt in the order of arrival after the first iteration.
[[nodiscard]] std::vector<std::vector<ParameterId>> ddp_buckets(const Job& job, bool after_first_iteration);

[[nodiscard]] std::vector<OptionSpec> ddp_options();
[[nodiscard]] std::vector<Release> ddp_releases();
[[nodiscard]] std::vector<std::string> ddp_without_effect(const Job& job);

}  // namespace shardsim
