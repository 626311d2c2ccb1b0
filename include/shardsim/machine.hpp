// SPDX-License-Identifier: Apache-2.0
// Machines by name, what this machine says of itself, and the first scenario for one's own.
#pragma once

#include "calibrate/doctor/machine_facts.hpp"
#include "reports/doctor_report.hpp"
#include "scenarios/reader/profile_file.hpp"
#include "studies/init/starter.hpp"
