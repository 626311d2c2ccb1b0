// SPDX-License-Identifier: Apache-2.0
// `check` of one file: its scenario simulated, and each line of its expect block compared with the result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "studies/check/check_case.hpp"

namespace shardsim {

struct CheckedFile {
  CheckCases cases;                        ///< never empty: a file that cannot be read is a case of its own
  std::string problems;                    ///< of the input, as text
  std::string changes;                     ///< of baselines, one line each
  std::vector<std::string> inputs{};       ///< files that were read for it
  std::vector<std::string> warnings{};     ///< of the simulation, each with its scenario
  std::optional<std::string> rewritten{};  ///< the file with the new baselines, where some moved
};

/// With `update`, baselines that moved count as held and `rewritten` has their new values.
[[nodiscard]] CheckedFile check_file(const std::string& file, bool update = false);

}  // namespace shardsim
