// SPDX-License-Identifier: Apache-2.0
// What `check` finds: one comparison a case.
#pragma once

#include <string>
#include <vector>

#include "sim/base/json_value.hpp"

namespace shardsim {

/// One comparison of a figure with what a scenario expects of it.
struct CheckCase {
  enum class Outcome { ok, moved, failed, error };  ///< moved: within the tolerance, yet not equal; error: could not be compared

  std::string scenario;  ///< file as given
  int line = 0;          ///< of the expectation; 0: none
  int column = 0;
  std::string metric;       ///< dotted path; "expect" for a scenario without expectations, "scenario" for one that cannot be read
  std::string expectation;  ///< "= 6 * psi * (n - 1) / n within 0.1 %"
  Json expected, actual;
  std::string moved;    ///< "+52.0 %"; empty where a distance means nothing
  std::string message;  ///< of an outcome that is not ok: one sentence with the formula and both values
  double seconds = 0;   ///< of real time
  Outcome outcome = Outcome::ok;

  [[nodiscard]] bool ok() const { return outcome == Outcome::ok || outcome == Outcome::moved; }
};

using CheckCases = std::vector<CheckCase>;

[[nodiscard]] std::size_t failures(const CheckCases& cases);

/// "12,345" of an integer, six significant digits of a number, text as it is.
[[nodiscard]] std::string figure_text(const Json& value);

[[nodiscard]] std::size_t failures(const CheckCases& cases);

}  // namespace shardsim
