// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/import/nccl_tests.hpp"

namespace shardsim::nccl_tests {

/// Tables of a text log as they stand: what is not stated stays open. Cut rows become warnings.
[[nodiscard]] NcclTestsLog tables_of_text(const Source& source);
/// Tables of a JSON log (nccl-tests -J), also one that was cut off.
[[nodiscard]] NcclTestsLog tables_of_json(const Source& source);

}  // namespace shardsim::nccl_tests
