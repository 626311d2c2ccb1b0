// SPDX-License-Identifier: Apache-2.0
// Which files a path stands for.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace shardsim {

/// Called with each file of a folder that is not a scenario.
using PassedOver = std::function<void(const std::string& file)>;

/// Files as given; of a folder, all scenarios below it, sorted. YAML files of other kinds (cluster profiles, sweeps) and what is hidden are
/// passed over in folders. A path that is not there, or a folder without scenarios, is an InputError.
[[nodiscard]] std::vector<std::string> scenario_files(const std::vector<std::string>& paths, const PassedOver& passed_over = {});

}  // namespace shardsim
