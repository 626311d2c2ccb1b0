// SPDX-License-Identifier: Apache-2.0
// Whether this process is one of several that mpirun or srun started. No MPI library is needed to know.
#pragma once

#include <cstdint>

namespace shardsim {

/// This process among those of its launch.
struct LaunchedRank {
  std::int64_t rank = 0, size = 1;
};

/// From the variables that the launchers set: Open MPI (OMPI_COMM_WORLD_RANK, _SIZE), MPICH, Intel and Cray MPI (PMI_RANK, PMI_SIZE),
/// MVAPICH (MV2_COMM_WORLD_RANK, _SIZE), Slurm's srun (SLURM_PROCID, SLURM_NTASKS). One rank where there are none.
[[nodiscard]] LaunchedRank launched();

}  // namespace shardsim
