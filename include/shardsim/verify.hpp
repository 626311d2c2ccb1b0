// SPDX-License-Identifier: Apache-2.0
// A prediction held against a real run.
#pragma once

#include "shardsim/scenario.hpp"
#include "studies/verify/run_record.hpp"
#include "studies/verify/verify.hpp"
