// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/nccl_tuner.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace shardsim {
namespace {

using ByProtocol = std::array<double, 3>;  // LL, LL128, Simple

constexpr std::size_t index_of(NcclProtocol p) { return static_cast<std::size_t>(p); }
constexpr std::size_t index_of(GpuGeneration g) { return static_cast<std::size_t>(g); }

/// Column of NCCL's tables: one node, two nodes, more.
std::size_t scale_of(const NcclSystem& s) { return s.nodes == 1 ? 0 : s.nodes == 2 ? 1 : 2; }

double base_latency(NcclAlgorithm a, NcclProtocol p) {
  constexpr ByProtocol tree{6.8, 14, 8.4}, ring{6.6, 14, 8.4};
  return a == NcclAlgorithm::tree ? tree[index_of(p)] : a == NcclAlgorithm::ring ? ring[index_of(p)] : 0;
}

double hop_latency(NcclAlgorithm a, NcclProtocol p, bool nvlink) {
  constexpr ByProtocol tree_nvlink{0.6, 1.25, 4}, ring_nvlink{0.6, 1.9, 3.4}, tree_pci{1, 1.9, 4}, ring_pci{1, 2.5, 5.7};
  if (a == NcclAlgorithm::nvls || a == NcclAlgorithm::nvls_tree) return nvlink ? 25 : 0;
  if (a == NcclAlgorithm::tree) return nvlink ? tree_nvlink[index_of(p)] : tree_pci[index_of(p)];
  return nvlink ? ring_nvlink[index_of(p)] : ring_pci[index_of(p)];
}

double net_latency(NcclAlgorithm a, NcclProtocol p) {
  constexpr ByProtocol tree{5, 8.5, 14}, ring{2.7, 4, 14};
  if (a == NcclAlgorithm::nvls) return 18;
  if (a == NcclAlgorithm::nvls_tree) return 20.9;
  return a == NcclAlgorithm::tree ? tree[index_of(p)] : ring[index_of(p)];
}

// Caps by generation (Volta, Ampere, Hopper, Blackwell) and scale, GB/s.
constexpr std::array<std::array<double, 3>, 4> ll_total{{{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
constexpr std::array<double, 4> ll128_ring_channel{20, 20, 36.7, 40};
constexpr std::array<std::array<double, 3>, 4> ll128_tree_channel{{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr std::array<std::array<double, 3>, 4> tree_channel{{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr std::array<std::array<double, 3>, 4> nvls_tree_channel{{{0, 0, 0}, {0, 0, 0}, {0, 57.7, 45.5}, {0, 96, 80}}};

double ring_bus(const NcclSystem& s, NcclProtocol p, double bus) {
  const auto channels = static_cast<double>(s.channels);
  if (p == NcclProtocol::ll) return std::min(ll_total[index_of(s.generation)][scale_of(s)], 0.5 * bus);
  if (p == NcclProtocol::ll128) return std::min(0.92 * bus, channels * ll128_ring_channel[index_of(s.generation)]);
  return bus;
}

double tree_bus(const NcclSystem& s, NcclProtocol p, double bus) {
  const auto channels = static_cast<double>(s.channels);
  const std::size_t g = index_of(s.generation), scale = scale_of(s);
  bus = std::min(0.92 * bus, channels * tree_channel[g][scale]);
  if (p == NcclProtocol::ll) return std::min(bus / 3.8, ll_total[g][scale]);
  if (p == NcclProtocol::ll128) return std::min(bus * (s.nodes == 1 ? 7.0 / 9 : 120.0 / 128), channels * ll128_tree_channel[g][scale]);
  return bus;
}

double nvls_bus(const NcclSystem& s, Collective c, bool tree) {
  const auto channels = static_cast<double>(s.channels);
  const double per_node = static_cast<double>(s.ranks) / static_cast<double>(s.nodes);
  const double efficiency = s.generation == GpuGeneration::blackwell ? 0.74 : 0.85;
  const double turn = c == Collective::all_reduce ? 2 : (per_node - 1) / per_node;
  double channel = s.intra_gbs * efficiency * (channels - 1) / channels * turn;
  if (s.nodes > 1) channel = std::min(channel, tree && s.nodes <= 2 ? 2 * s.inter_gbs : s.inter_gbs);
  if (tree) channel = std::min(channel, nvls_tree_channel[index_of(s.generation)][scale_of(s)]);
  return channel * channels;
}

bool offered(const NcclSystem& s, Collective c, NcclAlgorithm a, NcclProtocol p) {
  const bool nvls = a == NcclAlgorithm::nvls || a == NcclAlgorithm::nvls_tree;
  if (a == NcclAlgorithm::tree && c != Collective::all_reduce) return false;
  if (nvls && (s.generation < GpuGeneration::hopper || p != NcclProtocol::simple || s.channels < 2 || !s.nvlink)) return false;
  if (a == NcclAlgorithm::nvls) return s.nodes == 1 && s.ranks > 2;
  if (a == NcclAlgorithm::nvls_tree) return s.nodes > 1 && c == Collective::all_reduce;
  return p != NcclProtocol::ll128 || s.nvlink;
}

/// Algorithm bandwidth in GB/s.
double algorithm_bandwidth(const NcclSystem& s, Collective c, NcclAlgorithm a, NcclProtocol p) {
  const double bus = static_cast<double>(s.channels) * (s.nodes <= 2 ? s.intra_gbs : s.inter_gbs);
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
  double intra = hop_latency(a, p, s.nvlink);
  // Simple waits twice: for the data and for the flush.
  const double inter = net_latency(a == NcclAlgorithm::ring && per_node <= 1 ? NcclAlgorithm::tree : a, p) +
                       hop_latency(a, p, s.nvlink) * (p == NcclProtocol::simple ? 2 : 1);
  const double levels = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(s.nodes)) - 1);
  switch (a) {
    case NcclAlgorithm::ring: {
      if (s.nodes > 1) intra = std::max(intra, overhead);
      const auto crossing = static_cast<double>(passes(c) * (s.nodes - 1));
      return base_latency(a, p) + (static_cast<double>(ring_steps(c, s.ranks)) - crossing) * intra + crossing * inter;
    }
    case NcclAlgorithm::tree:
      return base_latency(a, p) + 2 * ((per_node - 1) * intra + levels * inter);
    case NcclAlgorithm::nvls:
      return intra + (s.nodes > 1 ? inter : 0);
    case NcclAlgorithm::nvls_tree:
      return intra + 2 * levels * inter;
  }
  return 0;
}

/// NCCL's correction of the tree's bandwidth for sizes of 64 B << i.
double tree_correction(NcclProtocol p, Bytes payload) {
  static constexpr std::array<std::array<double, 23>, 3> factors{
      {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
       {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
       {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};
  const std::int64_t units = payload.value() / 64;
  if (units < 1) return 1;
  const auto i = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(units)) - 1);
  return i < 23 ? factors[index_of(p)][i] : 1;
}

}  // namespace

std::string_view name_of(NcclAlgorithm algorithm) {
  constexpr std::array<std::string_view, 4> names{"tree", "ring", "nvls", "nvls_tree"};
  return names[static_cast<std::size_t>(algorithm)];
}

std::string_view name_of(NcclProtocol protocol) {
  constexpr std::array<std::string_view, 3> names{"ll", "ll128", "simple"};
  return names[index_of(protocol)];
}

NcclSystem nccl_system(GpuGeneration generation, std::int64_t ranks) {
  NcclSystem s;
  s.generation = generation;
  s.ranks = ranks;
  s.channels = generation == GpuGeneration::blackwell ? 16 : 12;
  s.intra_gbs = generation == GpuGeneration::blackwell ? 45 : generation == GpuGeneration::hopper ? 30 : 20;
  return s;
}

Seconds nccl_time(const NcclSystem& s, Collective c, Bytes payload, NcclAlgorithm a, NcclProtocol p) {
  if (!offered(s, c, a, p)) return Seconds{-1};
  double bandwidth = algorithm_bandwidth(s, c, a, p);
  double latency = latency_us(s, c, a, p);
  if (a == NcclAlgorithm::tree) bandwidth *= tree_correction(p, payload);
  // Above 64 bytes for each channel and rank, rings over several nodes sit on a latency plateau.
  if (a == NcclAlgorithm::ring && p == NcclProtocol::simple && s.nodes > 1 && c == Collective::all_reduce &&
      payload.value() / (s.channels * s.ranks) >= 64)
    latency *= s.generation < GpuGeneration::ampere ? 1.9 : 1.4;
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
