// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure/local.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "calibrate/execute/backends/backend.hpp"
#include "calibrate/measure/local_machine.hpp"
#include "calibrate/measure/ring_timing.hpp"

namespace shardsim {

Profile calibrate_local(const LocalOptions& options, const Progress& progress) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int ranks = options.ranks > 0 ? options.ranks : std::clamp(cores, 2, 8);
  Profile profile = describe_machine("calibrate local", std::max(cores, ranks));
  progress(0, fmt::format("ring between {} processes", ranks));
  execute::LocalPlatform platform;
  RingTiming timing = options.rings;
  timing.budget = options.budget * 0.5;
  SampleJournal journal(options.journal, journal_job("calibrate local", ranks, options.budget));
  timing.journal = &journal;
  timing.progress = progress;
  const auto lines = platform.run(ranks, [&](int rank, execute::Line& line) {
    const auto backend = platform.open(rank, ranks, line, options.network);
    return time_rings(backend->traffic(), rank, ranks, timing, line);
  });
  CollectiveSamples samples;
  add_timings(lines[0], 1,
              "measured: calibrate local, TCP ring between processes" +
                  std::string(options.network.peers.empty() ? " over the loop-back device" : ""),
              samples);
  profile.collectives = samples.fits();
  derive_ring(profile);
  profile.network.nic_bandwidth = profile.node.ring_bandwidth;
  profile.network.inter_latency = profile.node.intra_latency;
  measure_core(profile, options.budget * 0.35, progress_share, journal, progress);
  progress(1, "done");
  return profile;
}

}  // namespace shardsim
