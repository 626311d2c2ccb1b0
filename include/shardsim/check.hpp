// SPDX-License-Identifier: Apache-2.0
// Scenarios held to what their expect blocks say.
#pragma once

#include "shardsim/scenario.hpp"
#include "studies/check/check.hpp"
#include "studies/check/scenario_files.hpp"
