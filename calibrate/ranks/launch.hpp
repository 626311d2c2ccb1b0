// SPDX-License-Identifier: Apache-2.0
// Ranks that a launcher started (torchrun, mpirun, srun): who this process is, and how it meets the others over TCP.
#pragma once

#include <chrono>
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
  int local_rank = 0;   ///< among the ranks of this host
  std::string address;  ///< of rank 0: a name or an IPv4 address
  int port = 0;         ///< where rank 0 listens
};

/// A variable of the environment; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;
[[nodiscard]] Environment process_environment();

/// Reads torchrun's RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; Open MPI's OMPI_COMM_WORLD_*; MPICH's PMI_*; SLURM_* of a
/// step. MASTER_ADDR and MASTER_PORT count everywhere. Without them mpirun's ranks must be of one host; srun's meet at the first host of
/// the step. Nothing if no launcher is found. Throws EnvironmentError for variables that contradict each other or are no numbers.
[[nodiscard]] std::optional<Launch> launch_of(const Environment& environment);

/// The first host of Slurm's list: "node[03-07,12],login" is node03.
[[nodiscard]] std::string first_host(std::string_view list);

/// Rank 0 listens, the others connect; texts go through rank 0. What connects without knowing the greeting is turned away.
/// Throws EnvironmentError if not all ranks are there in time, naming those that are missing, or if one goes away later.
[[nodiscard]] std::unique_ptr<execute::Line> meet(const Launch& launch, std::chrono::milliseconds timeout = std::chrono::seconds(120));

}  // namespace shardsim
