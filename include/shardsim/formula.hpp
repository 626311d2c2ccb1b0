// SPDX-License-Identifier: Apache-2.0
// What the papers count, derived with a job's own numbers.
#pragma once

#include "shardsim/scenario.hpp"
#include "studies/formula/deepspeed_estimator.hpp"
#include "studies/formula/derivation.hpp"
#include "studies/formula/symbols.hpp"
