// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/nccl_tuner.hpp"

#include <algorithm>
#include <bit>

namespace shardsim {
namespace {

double ring_bus(const NcclSystem& s, NcclProtocol p, double bus) {
  const auto channels = static_cast<double>(s.channels);
  if (p == NcclProtocol::ll) return std::min(nccl::ll_limit(s.generation, s.nodes), nccl::ll_share * bus);
  if (p == NcclProtocol::ll128) return std::min(nccl::ring_ll128_share * bus, channels * nccl::ll128_ring_channel(s.generation));
  return bus;
}

double tree_bus(const NcclSystem& s, NcclProtocol p, double bus) {
  const auto channels = static_cast<double>(s.channels);
  bus = std::min(nccl::tree_share * bus, channels * nccl::tree_channel(s.generation, s.nodes));
  if (p == NcclProtocol::ll) return std::min(bus / nccl::tree_ll_divisor, nccl::ll_limit(s.generation, s.nodes));
  if (p == NcclProtocol::ll128)
    return std::min(bus * (s.nodes == 1 ? nccl::tree_ll128_one_node : nccl::ll128_share),
                    channels * nccl::ll128_tree_channel(s.generation, s.nodes));
  return bus;
}

double nvls_bus(const NcclSystem& s, Collective c, bool tree) {
  const auto channels = static_cast<double>(s.channels);
  const double per_node = static_cast<double>(s.ranks) / static_cast<double>(s.nodes);
  const double turn = c == Collective::all_reduce ? 2 : (per_node - 1) / per_node;
  double channel = s.intra_gbs * nvls_efficiency(s.generation) * (channels - 1) / channels * turn;
  if (s.nodes > 1) channel = std::min(channel, tree && s.nodes <= 2 ? 2 * s.inter_gbs : s.inter_gbs);
  if (tree) channel = std::min(channel, nccl::nvls_tree_channel(s.generation, s.nodes));
  return channel * channels;
}

bool offered(const NcclSystem& s, Collective c, NcclAlgorithm a, NcclProtocol p) {
  const bool nvls = a == NcclAlgorithm::nvls || a == NcclAlgorithm::nvls_tree;
  if (a == NcclAlgorithm::tree && c != Collective::all_reduce) return false;
  if (nvls && (s.generation < NcclGeneration::hopper || p != NcclProtocol::simple || s.channels < 2 || !s.nvlink)) return false;
  if (a == NcclAlgorithm::nvls) return s.nodes == 1 && s.ranks > 2;
  if (a == NcclAlgorithm::nvls_tree) return s.nodes > 1 && c == Collective::all_reduce;
  return p != NcclProtocol::ll128 || s.nvlink;
}

/// Algorithm bandwidth in GB/s.
double algorithm_bandwidth(const NcclSystem& s, Collective c, NcclAlgorithm a, NcclProtocol p) {
  const auto channels = static_cast<double>(s.channels);
  // The search gives rings no channel that the NICs cannot carry; across two nodes a tree's channels cross them half as often.
  const double bus =
      channels * (s.nodes == 1 ? s.intra_gbs : std::min(s.intra_gbs, (a == NcclAlgorithm::tree && s.nodes == 2 ? 2 : 1) * s.inter_gbs));
  const double per_step = static_cast<double>(s.ranks) / static_cast<double>(ring_steps(c, s.ranks));
  switch (a) {
    case NcclAlgorithm::ring:
      return ring_bus(s, p, bus) * per_step;
    case NcclAlgorithm::tree:
      return tree_bus(s, p, bus) * 0.5;
    case NcclAlgorithm::nvls:
    case NcclAlgorithm::nvls_tree: {
      const double nvls = nvls_bus(s, c, a == NcclAlgorithm::nvls_tree);
      return c == Collective::all_reduce ? nvls * per_step : nvls;  // AG and RS use the bus bandwidth as it is
    }
  }
  return 0;
}

double latency_us(const NcclSystem& s, Collective c, NcclAlgorithm a, NcclProtocol p) {
  const double per_node = static_cast<double>(s.ranks) / static_cast<double>(s.nodes);
  const double overhead = s.net_overhead_us * (p == NcclProtocol::simple ? 3 : 1);
  double intra = nccl::hop_latency(a, p, s.nvlink);
  // Simple waits twice: for the data and for the flush.
  const double inter = nccl::net_latency(a == NcclAlgorithm::ring && per_node <= 1 ? NcclAlgorithm::tree : a, p) +
                       nccl::hop_latency(a, p, s.nvlink) * (p == NcclProtocol::simple ? 2 : 1);
  const double levels = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(s.nodes)) - 1);
  switch (a) {
    case NcclAlgorithm::ring: {
      if (s.nodes > 1) intra = std::max(intra, overhead);
      const auto crossing = static_cast<double>(passes(c) * (s.nodes - 1));
      return nccl::base_latency(a, p) + (static_cast<double>(ring_steps(c, s.ranks)) - crossing) * intra + crossing * inter;
    }
    case NcclAlgorithm::tree:
      return nccl::base_latency(a, p) + 2 * ((per_node - 1) * intra + levels * inter);
    case NcclAlgorithm::nvls:
      return intra + (s.nodes > 1 ? inter : 0);
    case NcclAlgorithm::nvls_tree:
      return intra + 2 * levels * inter;
  }
  return 0;
}

}  // namespace

NcclSystem nccl_system(NcclGeneration generation, std::int64_t ranks) {
  NcclSystem s;
  s.generation = generation;
  s.ranks = ranks;
  s.channels = generation == NcclGeneration::blackwell ? 16 : 12;
  s.intra_gbs = generation == NcclGeneration::blackwell ? 45 : generation == NcclGeneration::hopper ? 30 : 20;
  return s;
}

Seconds nccl_time(const NcclSystem& s, Collective c, Bytes payload, NcclAlgorithm a, NcclProtocol p) {
  if (!offered(s, c, a, p)) return Seconds{-1};
  double bandwidth = algorithm_bandwidth(s, c, a, p);
  double latency = latency_us(s, c, a, p);
  if (a == NcclAlgorithm::tree) bandwidth *= nccl::tree_correction(p, payload);
  // Above 64 bytes for each channel and rank, rings over several nodes sit on a latency plateau.
  if (a == NcclAlgorithm::ring && p == NcclProtocol::simple && s.nodes > 1 && c == Collective::all_reduce &&
      payload.value() / (s.channels * s.ranks) >= 64)
    latency *= s.generation < NcclGeneration::ampere ? 1.9 : 1.4;
  return microseconds(latency + static_cast<double>(payload.value()) / (1000 * bandwidth));
}

NcclChoice nccl_choice(const NcclSystem& system, Collective collective, Bytes payload) {
  NcclChoice best;
  best.time = Seconds{1e30};
  for (const NcclAlgorithm a : {NcclAlgorithm::tree, NcclAlgorithm::ring, NcclAlgorithm::nvls, NcclAlgorithm::nvls_tree})
    for (const NcclProtocol p : {NcclProtocol::ll, NcclProtocol::ll128, NcclProtocol::simple}) {
      const Seconds time = nccl_time(system, collective, payload, a, p);
      if (time >= Seconds{} && time < best.time) best = {a, p, time};  // ties go to the first, as in NCCL
    }
  return best;
}

}  // namespace shardsim
