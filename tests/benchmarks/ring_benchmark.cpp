// SPDX-License-Identifier: Apache-2.0
// A ring all-reduce of 1 GiB, every rank and every slice of it, and rings laid onto a large cluster's graph.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "sim/costs/collectives/collective_placement.hpp"
#include "sim/costs/collectives/ring_steps.hpp"

namespace shardsim {
namespace {

/// Of the whole process so far, MiB.
double peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void ring_all_reduce_rank_by_rank(benchmark::State& state) {
  const RingChannels ring{1, ByteRate{50e9}, microseconds(1), {}};
  const std::vector<ByteRate> links(static_cast<std::size_t>(state.range(0)), ring.bandwidth);
  for (auto _ : state) benchmark::DoNotOptimize(explicit_ring(Collective::all_reduce, gibibytes(1), links, ring));
  state.counters["peak_MiB"] = peak_memory();
}
BENCHMARK(ring_all_reduce_rank_by_rank)->Arg(1024)->Arg(4096)->Unit(benchmark::kMillisecond);

/// 16,384 GPUs by the sums of a symmetric cluster, and 2,048 nodes under oversubscribed leaves.
void embed_rings_of_a_cluster(benchmark::State& state) {
  Cluster cluster;
  cluster.nodes = 2048;
  cluster.profile.node.ring_bandwidth = ByteRate{367e9};
  cluster.profile.gpu.host_link = ByteRate{54e9};
  cluster.profile.network.nics_per_node = 8;
  cluster.profile.network.nic_bandwidth = ByteRate{50e9};
  if (state.range(0) != 0) {
    cluster.profile.topology = Topology{};
    cluster.profile.topology->nodes_per_leaf = 32;
    cluster.profile.topology->spines = 16;
    cluster.profile.topology->oversubscription = 2;
  }
  for (auto _ : state) benchmark::DoNotOptimize(ring_path(Group{"world", 16384, 1}, cluster));
}
BENCHMARK(embed_rings_of_a_cluster)->Arg(0)->Arg(1)->ArgName("topology")->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shardsim
