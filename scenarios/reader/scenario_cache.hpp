// SPDX-License-Identifier: Apache-2.0
// Reads scenarios that are alike: the rows of a sweep, which differ in a key or two.
#pragma once

#include <memory>
#include <string>

#include "scenarios/reader/scenario.hpp"

namespace shardsim {

/// Reads as read_scenario() does, and does not read again a block that says what one of the last few said, nor build its model again:
/// rows alike in their model and training blocks share one Model. For one thread.
class ScenarioCache {
 public:
  /// `folder` is what relative paths start from; `most` values of each block are kept.
  ScenarioCache(std::string file, std::string folder, std::size_t most = 16);
  ~ScenarioCache();
  ScenarioCache(const ScenarioCache&) = delete;
  ScenarioCache& operator=(const ScenarioCache&) = delete;

  [[nodiscard]] Result<Scenario> read(ConfigNode root);

 private:
  struct Blocks;
  std::string file_, folder_;
  std::unique_ptr<Blocks> blocks_;
};

}  // namespace shardsim
