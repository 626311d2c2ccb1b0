// SPDX-License-Identifier: Apache-2.0
// What the program says on standard error beside its results.
#pragma once

#include <string>

namespace shardsim {

/// 0: warnings and errors; each step up adds information, then debugging; -1 and below: errors only.
void set_verbosity(int verbosity);

void log_info(const std::string& message);
void log_note(const std::string& message);  ///< what was done, said unless --quiet, without a level in front
void log_warning(const std::string& message);

}  // namespace shardsim
