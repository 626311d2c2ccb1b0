// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure/mpi.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <stdexcept>

#include "calibrate/measure/local_machine.hpp"

namespace shardsim {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// Ranks of the fullest host.
int most_on_a_host(const std::vector<std::string>& hosts) {
  std::map<std::string, int> ranks;
  int most = 0;
  for (const std::string& host : hosts) most = std::max(most, ++ranks[host]);
  return most;
}

}  // namespace

Profile calibrate_mpi(execute::Platform& platform, const MpiOptions& options, const Progress& progress) {
  if (!platform.launched()) throw std::logic_error("calibrate mpi needs ranks that a launcher has started");
  const int ranks = *platform.launched();
  if (ranks < 2)
    throw EnvironmentError("calibrate mpi: one rank has nobody to talk to; start at least two: mpirun -n 2 shardsim calibrate mpi ...");
  RingTiming timing = options.rings;
  timing.budget = options.budget * 0.5;
  Profile profile;
  std::vector<std::string> hosts;
  const auto lines = platform.run(ranks, [&](int rank, execute::Line& line) {
    hosts = line.gather(host_name());
    profile = describe_machine("calibrate mpi", most_on_a_host(hosts));
    progress(0, fmt::format("rings between {} ranks", ranks));
    const auto backend = platform.open(rank, ranks, line, {});
    SampleJournal journal(rank == 0 ? options.journal : "", journal_job("calibrate mpi", ranks, options.budget));
    RingTiming timed = timing;
    timed.journal = &journal;
    timed.progress = progress;
    const std::string measured = time_rings(backend->traffic(), rank, ranks, timed, line);
    if (rank == 0) measure_core(profile, options.budget * 0.35, progress_share, journal, progress);
    line.barrier();  // the others wait asleep: nobody computes beside the measurement
    return measured;
  });
  const int nodes = static_cast<int>(std::set<std::string>(hosts.begin(), hosts.end()).size());
  CollectiveSamples samples;
  add_timings(
      lines[0], nodes,
      fmt::format("measured: calibrate mpi, OpenMPI's rings between {} ranks on {} {}", ranks, nodes, nodes == 1 ? "host" : "hosts"),
      samples);
  profile.collectives = samples.fits();
  derive_ring(profile);
  profile.network.nic_bandwidth = profile.node.ring_bandwidth;
  profile.network.inter_latency = profile.node.intra_latency;
  if (nodes > 1) profile.origins["network"] = "measured: calibrate mpi, the ring over all hosts";
  progress(1, "done");
  return profile;
}

}  // namespace shardsim
