// SPDX-License-Identifier: Apache-2.0
// Rewriting the stored baselines of a scenario file: only the values change, every other character stays.
#pragma once

#include <string>
#include <vector>

#include "scenarios/reader/scenario.hpp"
#include "studies/check/exact_number.hpp"

namespace shardsim {

struct BaselineEdit {
  Where where;       ///< of the value's first character
  std::string from;  ///< as it stands in the file
  std::string to;
};

/// The edit that brings the baseline of expectation `index` to `actual`; nothing where it has none or the text would not change.
/// Integers are written in full, other numbers with six significant digits (more where the tolerance is finer).
[[nodiscard]] std::optional<BaselineEdit> baseline_edit(const Scenario& scenario, std::size_t index, const ExactNumber& actual);

/// `text` with the edits made. A place where the old value does not stand is a std::logic_error.
[[nodiscard]] std::string with_edits(std::string text, std::vector<BaselineEdit> edits);

}  // namespace shardsim
