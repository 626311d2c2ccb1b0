// SPDX-License-Identifier: Apache-2.0
// What `check` found, as text, JSON (shardsim.check/1), JUnit XML and GitHub annotations.
#pragma once

#include <string>
#include <vector>

#include "sim/base/json_value.hpp"
#include "studies/check/check_case.hpp"

namespace shardsim {

/// What failed and what moved, by scenario, and how many held.
[[nodiscard]] std::string check_table(const CheckCases& cases);
[[nodiscard]] Json check_json(const CheckCases& cases);

/// One suite a scenario, one test case a comparison; read by GitLab, Jenkins and the reporters of GitHub.
[[nodiscard]] std::string junit_xml(const CheckCases& cases);

/// A workflow command for each case that is not ok: GitHub shows them at the lines of the scenario.
[[nodiscard]] std::string github_annotations(const CheckCases& cases, const std::string& root = "");

}  // namespace shardsim
