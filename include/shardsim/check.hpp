// SPDX-License-Identifier: Apache-2.0
// Scenarios held to what their expect blocks say.
#pragma once

#include "shardsim/scenario.hpp"
#include "studies/check/baselines.hpp"
#include "studies/check/expectations.hpp"
#include "studies/check/scenario_files.hpp"
#include "studies/simulate/simulate_json.hpp"
