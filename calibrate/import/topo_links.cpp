// SPDX-License-Identifier: Apache-2.0
// The matrix of `nvidia-smi topo -m` as links of a cluster's graph.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "calibrate/import/topo.hpp"

namespace shardsim {
namespace {

constexpr ByteRate host_bridge{10e9};  // NCCL src/graph/topo.h: what it expects through a CPU, and between sockets

bool below_one_switch(const std::string& word) { return word == "PIX" || word == "PXB"; }
bool below_one_host(const std::string& word) { return below_one_switch(word) || word == "PHB" || word == "NODE"; }

/// Devices, GPUs first, that `together` puts into one set; sets are numbered in the order of their first device.
template <class Together>
std::vector<int> sets_of(const NodeTopology& topology, Together together) {
  const std::size_t gpus = topology.gpus.size(), nics = topology.nics.size();
  std::vector<int> set(gpus + nics);
  std::iota(set.begin(), set.end(), 0);
  const auto merge = [&](std::size_t a, std::size_t b) {
    const int from = std::max(set[a], set[b]), to = std::min(set[a], set[b]);
    std::ranges::replace(set, from, to);
  };
  for (std::size_t i = 0; i < gpus; ++i) {
    for (std::size_t j = 0; j < gpus; ++j)
      if (i != j && together(topology.between_gpus[i][j])) merge(i, j);
    for (std::size_t j = 0; j < nics; ++j)
      if (together(topology.gpu_to_nic[i][j])) merge(i, gpus + j);
  }
  std::vector<int> known;
  for (int& number : set) {
    if (std::ranges::find(known, number) == known.end()) known.push_back(number);
    number = static_cast<int>(std::ranges::find(known, number) - known.begin());
  }
  return set;
}

std::string device(const NodeTopology& topology, std::size_t i) {
  return i < topology.gpus.size() ? fmt::format("gpu{}", i) : fmt::format("nic{}", i - topology.gpus.size());
}

/// A switch, or cables from GPU to GPU.
void add_nvlinks(const NodeTopology& topology, ByteRate each, std::vector<TopologyLinks>& links) {
  const auto gpus = static_cast<int>(topology.gpus.size());
  const int fewest = topology.fewest_nvlinks();
  if (topology.has_nvswitch()) {
    links.push_back({fmt::format("gpu[0-{}]", gpus - 1), "nvswitch0", each * fewest, {}, Wiring::all});
    return;
  }
  for (std::size_t i = 0; i < topology.gpus.size(); ++i)
    for (std::size_t j = i + 1; j < topology.gpus.size(); ++j)
      if (const int count = std::min(nvlinks_of(topology.between_gpus[i][j]), nvlinks_of(topology.between_gpus[j][i])); count > 0)
        links.push_back({device(topology, i), device(topology, j), each * count, {}, Wiring::all});
}

}  // namespace

std::vector<TopologyLinks> links_of(const NodeTopology& topology, ByteRate nvlink, ByteRate pcie) {
  std::vector<TopologyLinks> links;
  add_nvlinks(topology, nvlink, links);
  const std::vector<int> switches = sets_of(topology, below_one_switch), hosts = sets_of(topology, below_one_host);
  std::vector<int> seen;
  for (std::size_t i = 0; i < switches.size(); ++i) {
    links.push_back({device(topology, i), fmt::format("pcie{}", switches[i]), pcie, {}, Wiring::all});
    if (std::ranges::find(seen, switches[i]) != seen.end()) continue;
    seen.push_back(switches[i]);
    links.push_back({fmt::format("pcie{}", switches[i]), fmt::format("host{}", hosts[i]), std::min(pcie, host_bridge), {}, Wiring::all});
  }
  const int sockets = *std::ranges::max_element(hosts);
  for (int host = 1; host <= sockets; ++host) links.push_back({"host0", fmt::format("host{}", host), host_bridge, {}, Wiring::all});
  return links;
}

}  // namespace shardsim
