// SPDX-License-Identifier: Apache-2.0
// Figures of a plan as a planner says them: "300 billion tokens", "1 GPU", "31.8 days", "$73,180".
#pragma once

#include <cstdint>
#include <string>

#include "studies/plan/planner.hpp"

namespace shardsim {

/// "1 GPU", "1,024 GPUs".
[[nodiscard]] std::string gpus_text(std::int64_t gpus);

/// "300 billion tokens"; three significant digits.
[[nodiscard]] std::string tokens_text(double tokens);

/// "12 %", below a tenth "4.6 %".
[[nodiscard]] std::string percent_text(double share);

/// How long training takes: "14.3 h" below two days, "31.8 days", beyond two years "20,722 days (57 years)".
[[nodiscard]] std::string wall_text(Seconds wall);

/// Days alone, for a column: "0.0041", "3.8", "1,860".
[[nodiscard]] std::string days_text(Seconds wall);

/// A number without decimals: "48,787".
[[nodiscard]] std::string whole_text(double number);

}  // namespace shardsim
