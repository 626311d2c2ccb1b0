// SPDX-License-Identifier: Apache-2.0
// A scenario: one training job on one cluster, as the user wrote it and as values.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/families/hf_config.hpp"
#include "models/model.hpp"
#include "sim/config/node.hpp"
#include "sim/machine/profile.hpp"
#include "sim/machine/stack.hpp"
#include "strategies/checkpoint.hpp"
#include "strategies/strategy.hpp"

namespace shardsim {

/// One line of `expect:`, not yet evaluated.
struct Expectation {
  Where where;
  std::string metric;                       ///< dotted path into the JSON of `simulate`
  std::optional<std::string> equals;        ///< a formula
  Where equals_where;                       ///< of the formula's first character
  std::optional<double> at_most, at_least;  ///< in base units
  std::optional<double> baseline;
  std::optional<double> relative, absolute;
};

struct Scenario {
  std::string file;  ///< as given on the command line
  ConfigNode root;   ///< after --set
  std::shared_ptr<const Architecture> architecture;
  std::shared_ptr<const Model> model;  ///< at this batch shape and precision
  Cluster cluster;
  Training training;
  std::shared_ptr<const Stack> stack;  ///< what the software costs
  StrategyChoice strategy;
  std::optional<CheckpointRequest> checkpoint;  ///< its bandwidths are filled in from the profile
  std::vector<Expectation> expect;
  std::vector<std::string> warnings;

  [[nodiscard]] Job job() const;
};

/// Reads a scenario file, its model and its cluster profile, and applies `assignments` (the arguments of --set).
/// Paths inside are relative to the scenario's folder, then to the shipped scenarios.
[[nodiscard]] Result<Scenario> load_scenario(const std::string& path, const std::vector<std::string>& assignments = {});
/// The same from a tree that was read already (sweeps, plans). `folder` is what relative paths start from.
[[nodiscard]] Result<Scenario> read_scenario(ConfigNode root, const std::string& file, const std::string& folder);

/// Names of the stacks in it, sorted.
[[nodiscard]] std::vector<std::string> shipped_stacks();

/// The folder of shipped scenarios: beside the source tree, or share/shardsim of the installation; SHARDSIM_DATA overrides it.
[[nodiscard]] std::string shipped_folder();

}  // namespace shardsim
