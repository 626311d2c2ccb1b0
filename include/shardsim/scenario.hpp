// SPDX-License-Identifier: Apache-2.0
// Scenarios: one training job on one cluster, from a file, from text, or from the configuration of another tool.
#pragma once

#include <string>
#include <vector>

#include "scenarios/importers/import.hpp"
#include "scenarios/reader/named_files.hpp"
#include "scenarios/reader/scenario.hpp"
#include "shardsim/expected.hpp"
#include "studies/compare/variant.hpp"
#include "studies/simulate/simulation_job.hpp"

namespace shardsim {

/// Reads a scenario file with its model and its cluster profile. `overrides`: "key=value", as for --set. Relative paths inside start at the
/// file's folder, then at the shipped scenarios (SHARDSIM_DATA, or share/shardsim of the installation).
[[nodiscard]] inline Expected<Scenario> load(const std::string& path, const std::vector<std::string>& overrides = {}) {
  return expected_from([&] { return value_or_throw(load_scenario(path, overrides)); });
}

/// The same from YAML text. `name` stands for the file in messages; relative paths start at `folder`.
[[nodiscard]] inline Expected<Scenario> parse(std::string yaml, const std::vector<std::string>& overrides = {},
                                              const std::string& name = "<text>", const std::string& folder = ".") {
  return expected_from([&] {
    const Scenario base = value_or_throw(read_scenario(value_or_throw(read_yaml({name, std::move(yaml)})), name, folder));
    return overrides.empty() ? base : value_or_throw(vary(base, overrides));
  });
}

}  // namespace shardsim
