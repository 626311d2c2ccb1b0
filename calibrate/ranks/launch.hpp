// SPDX-License-Identifier: Apache-2.0
// Ranks that a launcher started (torchrun, mpirun, srun) and tasks of a job array (Slurm, Kubernetes): who this process is, and how ranks
// meet over TCP. Read by calibrate, execute and sweep alike.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "calibrate/ranks/line.hpp"

namespace shardsim {

/// What the launcher has told this process.
struct Launch {
  std::string launcher;  ///< "torchrun", "mpirun", "srun"
  int rank = 0, ranks = 1;
  int local_rank = 0;  ///< among the ranks of this host
};

/// Where rank 0 listens.
struct MeetingPoint {
  std::string address;  ///< a name or an IPv4 address
  int port = 0;
  std::uint64_t key = 0;  ///< that ranks of this job share, and others do not know
};

/// One job of an array of jobs that do not know each other.
struct ArrayTask {
  int index = 0, count = 1;
};

/// A variable of the environment; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;
[[nodiscard]] Environment process_environment();

/// Reads torchrun's RANK, WORLD_SIZE, LOCAL_RANK (with MASTER_ADDR); Open MPI's OMPI_COMM_WORLD_*; PMI_* of MPICH, Intel and Cray MPI;
/// MVAPICH's MV2_COMM_WORLD_*; SLURM_* of a step. Nothing if no launcher is found: in a batch script without srun there is one process.
/// Throws EnvironmentError for variables that contradict each other or are not numbers.
[[nodiscard]] std::optional<Launch> launch_of(const Environment& environment);

/// The key comes from SHARDSIM_SECRET, which whoever shares the network with strangers sets to something random for all ranks; without it,
/// from what identifies the job to its launcher, which keeps jobs apart. MASTER_ADDR and MASTER_PORT count everywhere. Without them
/// mpirun's ranks must be of one host; srun's meet at the first host of the step.
[[nodiscard]] MeetingPoint meeting_point(const Launch& launch, const Environment& environment);

/// Slurm's SLURM_ARRAY_TASK_ID, _COUNT, _MIN, _MAX and _STEP; JOB_COMPLETION_INDEX of a Kubernetes Indexed Job, whose manifest says
/// JOB_COMPLETIONS because Kubernetes does not. Nothing outside of arrays.
[[nodiscard]] std::optional<ArrayTask> array_task_of(const Environment& environment);

/// The first host of Slurm's list: "node[03-07,12],login" is node03.
[[nodiscard]] std::string first_host(std::string_view list);

/// Rank 0 listens, the others connect; texts go through rank 0. Whoever connects without the key, or does not say it within two seconds, is
/// turned away and holds up nobody.
/// Throws EnvironmentError if not all ranks are there in time, naming those that are missing, or if one goes away later.
[[nodiscard]] std::unique_ptr<execute::Line> meet(const Launch& launch, const MeetingPoint& point,
                                                  std::chrono::milliseconds timeout = std::chrono::seconds(120));

}  // namespace shardsim
