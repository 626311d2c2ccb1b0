// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ranks/launch.hpp"

#include <charconv>
#include <cstdlib>

#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

/// How each launcher names what it tells.
struct Names {
  const char *launcher, *rank, *ranks, *local_rank;
  const char* marker;  ///< set only where ranks were started: in a batch script Slurm sets most variables too
};
constexpr Names launchers[]{
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_ID"}};

std::optional<int> number_of(const Environment& environment, std::string_view name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0)
    throw EnvironmentError(std::string(name) + "=" + printable(*text) + " is no number of ranks");
  return value;
}

/// A port that the ranks of one job agree on, and those of another hardly meet.
int port_of_job(const Environment& environment) {
  for (const char* name : {"SLURM_JOB_ID", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"}) {
    const auto job = environment(name);
    if (!job) continue;
    unsigned hash = 0;
    for (char c : *job) hash = hash * 31 + static_cast<unsigned char>(c);
    return 20'000 + static_cast<int>(hash % 10'000);
  }
  return 29'431;
}

void find_meeting_place(Launch& launch, const Environment& environment) {
  const auto port = number_of(environment, "MASTER_PORT");
  launch.port = port.value_or(port_of_job(environment));
  // torchrun's agent may serve its own store at that port.
  if (port && environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True") ++launch.port;
  if (launch.port < 1 || launch.port > 65'535) throw EnvironmentError("MASTER_PORT=" + std::to_string(launch.port) + " is no port");
  if (const auto address = environment("MASTER_ADDR")) {
    launch.address = *address;
    return;
  }
  const auto list = environment("SLURM_STEP_NODELIST");
  if (launch.launcher == "srun" && list) {
    launch.address = first_host(*list);
    return;
  }
  const auto local = number_of(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (local && *local < launch.ranks)
    throw EnvironmentError(
        "mpirun started ranks on several hosts: pass rank 0's address to all of them, as in `mpirun -x MASTER_ADDR=10.0.0.1 ...`");
  launch.address = "127.0.0.1";
}

}  // namespace

Environment process_environment() {
  return [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
}

std::optional<Launch> launch_of(const Environment& environment) {
  for (const Names& names : launchers) {
    const auto rank = number_of(environment, names.rank), ranks = number_of(environment, names.ranks);
    if (!rank || !ranks || !environment(names.marker)) continue;
    Launch launch;
    launch.launcher = names.launcher;
    launch.rank = *rank;
    launch.ranks = *ranks;
    launch.local_rank = number_of(environment, names.local_rank).value_or(*rank);
    if (launch.rank >= launch.ranks)
      throw EnvironmentError(std::string(names.rank) + "=" + std::to_string(*rank) + " but " + names.ranks + "=" + std::to_string(*ranks));
    find_meeting_place(launch, environment);
    return launch;
  }
  return std::nullopt;
}

std::string first_host(std::string_view list) {
  const std::size_t open = list.find_first_of("[,");
  if (open == std::string_view::npos || list[open] == ',') return std::string(list.substr(0, open));
  const std::size_t number = open + 1;
  return std::string(list.substr(0, open)) + std::string(list.substr(number, list.find_first_of("-,]", number) - number));
}

}  // namespace shardsim
