// SPDX-License-Identifier: Apache-2.0
#include "calibrate/ranks/launch.hpp"

#include <algorithm>
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
// A launcher inside a Slurm allocation says more than the allocation: Slurm comes last.
constexpr Names launchers[]{
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMI_SIZE"},
    {"mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_ID"}};

std::optional<int> number_of(const Environment& environment, std::string_view name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < 0)
    throw EnvironmentError(std::string(name) + "=" + printable(*text) + " is not a number of ranks");
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

std::uint64_t key_of_job(const Environment& environment) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  const auto add = [&](const char* name) {
    const std::string value = environment(name).value_or("") + '\n';
    for (const char c : value) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  };
  add("SHARDSIM_SECRET");
  for (const char* name :
       {"SLURM_JOB_ID", "SLURM_STEP_ID", "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMI_JOBID", "TORCHELASTIC_RUN_ID"})
    add(name);
  return hash;
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
    if (!environment(names.marker)) continue;
    const auto rank = number_of(environment, names.rank), ranks = number_of(environment, names.ranks);
    if (!rank || !ranks) continue;
    if (*rank >= *ranks)
      throw EnvironmentError(std::string(names.rank) + "=" + std::to_string(*rank) + " but " + names.ranks + "=" + std::to_string(*ranks));
    return Launch{names.launcher, *rank, *ranks, number_of(environment, names.local_rank).value_or(*rank)};
  }
  return std::nullopt;
}

MeetingPoint meeting_point(const Launch& launch, const Environment& environment) {
  MeetingPoint point;
  point.key = key_of_job(environment);
  const auto port = number_of(environment, "MASTER_PORT");
  point.port = port.value_or(port_of_job(environment));
  // torchrun's agent may serve its own store at that port.
  if (port && environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True") ++point.port;
  if (point.port < 1 || point.port > 65'535) throw EnvironmentError("MASTER_PORT=" + std::to_string(point.port) + " is not a port");
  if (const auto address = environment("MASTER_ADDR")) {
    point.address = *address;
    return point;
  }
  if (const auto list = environment("SLURM_STEP_NODELIST"); list && launch.launcher == "srun") {
    point.address = first_host(*list);
    return point;
  }
  const auto local = number_of(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (local && *local < launch.ranks)
    throw EnvironmentError(
        "mpirun started ranks on several hosts: pass rank 0's address to all of them, as in `mpirun -x MASTER_ADDR=10.0.0.1 ...`");
  point.address = "127.0.0.1";
  return point;
}

std::optional<ArrayTask> array_task_of(const Environment& environment) {
  if (const auto index = number_of(environment, "JOB_COMPLETION_INDEX")) {
    const auto count = number_of(environment, "JOB_COMPLETIONS");
    if (!count)
      throw EnvironmentError("JOB_COMPLETION_INDEX=" + std::to_string(*index) +
                             " but Kubernetes does not say of how many: set JOB_COMPLETIONS to the Job's completions");
    if (*index >= *count)
      throw EnvironmentError("JOB_COMPLETION_INDEX=" + std::to_string(*index) + " but JOB_COMPLETIONS=" + std::to_string(*count));
    return ArrayTask{*index, *count};
  }
  const auto id = number_of(environment, "SLURM_ARRAY_TASK_ID"), count = number_of(environment, "SLURM_ARRAY_TASK_COUNT");
  if (!id || !count) return std::nullopt;
  const int least = number_of(environment, "SLURM_ARRAY_TASK_MIN").value_or(0),
            most = number_of(environment, "SLURM_ARRAY_TASK_MAX").value_or(*count - 1);
  const int step = std::max(1, number_of(environment, "SLURM_ARRAY_TASK_STEP").value_or(1));
  const bool regular = *id >= least && *id <= most && (*id - least) % step == 0 && (most - least) / step + 1 == *count;
  if (!regular)
    throw EnvironmentError("the tasks of this Slurm job array are not evenly spaced, so that SLURM_ARRAY_TASK_ID=" + std::to_string(*id) +
                           " does not say which of them this is");
  return ArrayTask{(*id - least) / step, *count};
}

std::string first_host(std::string_view list) {
  const std::size_t open = list.find_first_of("[,");
  if (open == std::string_view::npos || list[open] == ',') return std::string(list.substr(0, open));
  const std::size_t number = open + 1;
  return std::string(list.substr(0, open)) + std::string(list.substr(number, list.find_first_of("-,]", number) - number));
}

}  // namespace shardsim
