// SPDX-License-Identifier: Apache-2.0
// Thousands of scenarios: a grid or a list of rows, on all cores, resumable.
#pragma once

#include "shardsim/scenario.hpp"
#include "sim/base/parallel.hpp"
#include "studies/sweep/run.hpp"
