// SPDX-License-Identifier: Apache-2.0
// Ranks that mpirun or srun has started, with OpenMPI's ring algorithms between them and its monitoring component as the counter.
#pragma once

#include <memory>

#include "calibrate/execute/backends/backend.hpp"

namespace shardsim::execute {

/// Initialises MPI, once in the life of a process. `command` is what the user typed, for messages ("execute --backend mpi").
/// Throws EnvironmentError in a build without MPI, without a launcher, or if MPI cannot count messages (only OpenMPI can).
[[nodiscard]] std::unique_ptr<Platform> open_mpi_platform(const std::string& command);

}  // namespace shardsim::execute
