// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/nccl_tables.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace shardsim {
namespace {

using ByProtocol = std::array<double, 3>;     // LL, LL128, Simple
using ByScale = std::array<double, 3>;        // one node, two nodes, more
using ByGeneration = std::array<ByScale, 4>;  // Volta, Ampere, Hopper, Blackwell

constexpr std::size_t index_of(NcclProtocol p) { return static_cast<std::size_t>(p); }
constexpr std::size_t index_of(NcclGeneration g) { return static_cast<std::size_t>(g); }
constexpr std::size_t scale_of(std::int64_t nodes) { return nodes == 1 ? 0 : nodes == 2 ? 1 : 2; }

constexpr std::array<std::array<double, 23>, 3> tree_corrections{
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}}};

}  // namespace

std::string_view name_of(NcclAlgorithm algorithm) {
  constexpr std::array<std::string_view, 4> names{"tree", "ring", "nvls", "nvls_tree"};
  return names[static_cast<std::size_t>(algorithm)];
}

std::string_view name_of(NcclProtocol protocol) {
  constexpr std::array<std::string_view, 3> names{"ll", "ll128", "simple"};
  return names[index_of(protocol)];
}

double nvls_efficiency(NcclGeneration generation) { return generation == NcclGeneration::blackwell ? 0.74 : 0.85; }

namespace nccl {

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

double ll_limit(NcclGeneration generation, std::int64_t nodes) {
  constexpr ByGeneration limits{{{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
  return limits[index_of(generation)][scale_of(nodes)];
}

double ll128_ring_channel(NcclGeneration generation) {
  constexpr std::array<double, 4> limits{20, 20, 36.7, 40};
  return limits[index_of(generation)];
}

double ll128_tree_channel(NcclGeneration generation, std::int64_t nodes) {
  constexpr ByGeneration limits{{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
  return limits[index_of(generation)][scale_of(nodes)];
}

double tree_channel(NcclGeneration generation, std::int64_t nodes) {
  constexpr ByGeneration limits{{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
  return limits[index_of(generation)][scale_of(nodes)];
}

double nvls_tree_channel(NcclGeneration generation, std::int64_t nodes) {
  constexpr ByGeneration limits{{{0, 0, 0}, {0, 0, 0}, {0, 57.7, 45.5}, {0, 96, 80}}};
  return limits[index_of(generation)][scale_of(nodes)];
}

double tree_correction(NcclProtocol p, Bytes payload) {
  const std::int64_t units = payload.value() / 64;
  if (units < 1) return 1;
  const auto i = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(units)) - 1);
  return i < 23 ? tree_corrections[index_of(p)][i] : 1;
}

double smooth_tree_correction(NcclProtocol p, Bytes payload) {
  const auto& factors = tree_corrections[index_of(p)];
  const double i = std::log2(std::max(1.0, static_cast<double>(payload.value()) / 64));
  const auto below = static_cast<std::size_t>(i);
  const auto at = [&](std::size_t j) { return j < factors.size() ? factors[j] : 1.0; };
  return at(below) * std::pow(at(below + 1) / at(below), i - static_cast<double>(below));
}

}  // namespace nccl
}  // namespace shardsim
