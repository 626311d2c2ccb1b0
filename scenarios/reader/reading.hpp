// SPDX-License-Identifier: Apache-2.0
// Private to scenarios/: the readers of one block each, and how files are found.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scenarios/reader/scenario.hpp"

namespace shardsim {

/// A path as written, and the file that it leads to: absolute, else from the scenario's folder, else from the shipped scenarios.
struct FoundFile {
  std::string path;                 ///< empty: nowhere
  std::vector<std::string> looked;  ///< where it was looked for
};
[[nodiscard]] FoundFile find_file(const std::string& written, const std::string& folder);

/// The file that a key names, read as a tree once in the life of the process; a missing or bad file is a problem.
enum class FileFormat : std::uint8_t { yaml, json };
[[nodiscard]] std::shared_ptr<const ConfigNode> read_named_file(const ConfigNode& name, const std::string& folder, FileFormat format,
                                                                Problems& problems);

/// Problems of a callee that knows no place in the scenario are told at `where`.
void append_at(Problems& problems, const Problems& others, const Where& where);

/// A map without entries that stands at `where`.
[[nodiscard]] ConfigNode empty_map(const Where& where);
/// Puts an entry into a map: maps merge, anything else is replaced. `changed` collects the dotted keys of what was replaced.
void merge_entry(ConfigNode& map, const Entry& override, const std::string& path, std::vector<std::string>& changed);

/// The stack that `node` names, with what it overrides; of a node that says nothing, the one that the strategy is usually run by.
[[nodiscard]] std::shared_ptr<const Stack> read_stack_choice(const ConfigNode& node, const std::string& folder, Problems& problems);
/// What training.stack says: nothing said is the name of the strategy's own stack.
[[nodiscard]] ConfigNode stack_node(const ConfigNode& root, const StrategyChoice& strategy);

/// The `training:` block.
[[nodiscard]] Training read_training(const ConfigNode& block, Problems& problems);
/// A word or a map of dtypes (design: "Precision").
[[nodiscard]] Precision read_precision(const ConfigNode& node, Problems& problems);

/// The `model:` block; no architecture where there are problems.
struct ModelChoice {
  std::shared_ptr<const Architecture> architecture;
  Trainable trainable;
};
[[nodiscard]] ModelChoice read_model(const ConfigNode& block, const std::string& folder, Problems& problems);

/// A state for each rank of the cluster; nothing where all are alike.
[[nodiscard]] RankStates read_differences(const ConfigNode& node, const Cluster& cluster, const std::string& folder, Problems& problems);
/// The `cluster:` block: the profile with the scenario's overrides.
[[nodiscard]] Cluster read_cluster(const ConfigNode& block, const std::string& folder, Problems& problems,
                                   std::vector<std::string>& warnings);

/// The `strategy:` block.
[[nodiscard]] StrategyChoice read_strategy(const ConfigNode& block, Problems& problems);

/// The `checkpoint:` block.
[[nodiscard]] CheckpointRequest read_checkpoint(const ConfigNode& block, const std::optional<Storage>& storage, Problems& problems);

/// The `expect:` list.
[[nodiscard]] std::vector<Expectation> read_expectations(const ConfigNode& list, Problems& problems);

}  // namespace shardsim
