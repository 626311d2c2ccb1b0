// SPDX-License-Identifier: Apache-2.0
// A scenario run on real memory and a real network, next to its prediction.
#pragma once

#include "shardsim/scenario.hpp"
#include "studies/execute/execution_job.hpp"
