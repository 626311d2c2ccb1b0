// SPDX-License-Identifier: Apache-2.0
// Profiles of machines: measured here, or imported from logs and traces.
#pragma once

#include "calibrate/execute/backends/mpi_platform.hpp"
#include "calibrate/import/collective_samples.hpp"
#include "calibrate/import/collective_tables.hpp"
#include "calibrate/import/gpu_tables.hpp"
#include "calibrate/import/kineto.hpp"
#include "calibrate/import/nccl_tests.hpp"
#include "calibrate/import/topo.hpp"
#include "calibrate/measure/gpu.hpp"
#include "calibrate/measure/local.hpp"
#include "calibrate/measure/mpi.hpp"
#include "calibrate/measure/sample_journal.hpp"
#include "shardsim/scenario.hpp"
