// SPDX-License-Identifier: Apache-2.0
// A run that somebody measured, beside its prediction.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.hpp"

namespace shardsim {

struct MeasuredRun {
  std::optional<Seconds> step_time;  ///< as measured, or derived from the tokens a second
  std::optional<double> tokens_per_second_per_gpu;
  std::optional<Bytes> peak;                     ///< allocated
  std::optional<double> mfu, hfu;                ///< under the convention of the prediction
  std::optional<double> time_error, peak_error;  ///< prediction / measurement - 1
  std::vector<std::string> doubts;               ///< why a figure cannot be what it is said to be
};

}  // namespace shardsim
