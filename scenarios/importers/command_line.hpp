// SPDX-License-Identifier: Apache-2.0
// Command lines of training programs as configuration trees, with positions.
#pragma once

#include "sim/config/node.hpp"

namespace shardsim {

/// The `--key value`, `--key=value` and `--flag` arguments of a shell script or a bare list as one map: keys with underscores for dashes,
/// values as a scalar, a list where there are several, true where there is none; the last of a repeated key counts. Launchers' arguments
/// (torchrun, accelerate launch, deepspeed) are in the same map. Comments, continued lines, quotes, arrays and "$VARIABLES" that the text
/// assigns are understood; other variables stay as text.
[[nodiscard]] Result<ConfigNode> read_command_line(const Source& source, const ReadLimits& limits = {});
/// Whether a text looks like a command line and not like YAML or JSON.
[[nodiscard]] bool looks_like_command_line(const Source& source);

}  // namespace shardsim
