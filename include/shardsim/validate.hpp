// SPDX-License-Identifier: Apache-2.0
// Predictions next to measurements: published ones, and steps of one's own that correct a profile.
#pragma once

#include "reports/fit_report.hpp"
#include "reports/validation_report.hpp"
#include "shardsim/scenario.hpp"
#include "studies/fit/runs.hpp"
#include "studies/validate/validation.hpp"
