// SPDX-License-Identifier: Apache-2.0
// Formulas of `expect`: arithmetic over named quantities of the job.
//
//   sum      = product { ("+" | "-") product }
//   product  = signed { ("*" | "/") signed }
//   signed   = [ "-" | "+" ] signed | power
//   power    = primary [ "^" signed ]
//   primary  = number [ unit ] | name | function "(" sum { "," sum } ")" | "(" sum ")"
//   function = "min" | "max" | "floor" | "ceil"
//   unit     = "B" | "kB" | "MB" | "GB" | "TB" | "KiB" | "MiB" | "GiB" | "TiB"
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "sim/base/problem.hpp"
#include "studies/check/exact_number.hpp"

namespace shardsim {

using Symbols = std::map<std::string, ExactNumber, std::less<>>;

/// `where` is the place of the formula's first character. Whatever is wrong is a problem at its own column: a character that begins
/// nothing, a missing parenthesis, an unknown name (with the nearest known one), a division by zero.
[[nodiscard]] Result<ExactNumber> evaluate(std::string_view formula, const Where& where, const Symbols& symbols);

}  // namespace shardsim
