// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/nccl_system.hpp"

#include <algorithm>
#include <array>

namespace shardsim {
namespace {

constexpr ByteRate fastest_pcie{64e9};  // Gen5 x16: what is faster is NVLink

}  // namespace

GpuGeneration generation_of(std::string_view gpu) {
  struct Name {
    std::string_view part;
    GpuGeneration generation;
  };
  using enum GpuGeneration;
  static constexpr std::array<Name, 9> names{{{"B100", blackwell},
                                              {"B200", blackwell},
                                              {"B300", blackwell},
                                              {"H100", hopper},
                                              {"H200", hopper},
                                              {"H800", hopper},
                                              {"H20", hopper},
                                              {"V100", volta},
                                              {"A100", ampere}}};
  const auto found = std::ranges::find_if(names, [&](const Name& name) { return gpu.find(name.part) != std::string_view::npos; });
  return found == names.end() ? GpuGeneration::ampere : found->generation;
}

double nvls_efficiency(GpuGeneration generation) { return generation == GpuGeneration::blackwell ? 0.74 : 0.85; }

NcclSystem nccl_system(const Profile& profile, const RingPath& path) {
  NcclSystem system = nccl_system(generation_of(profile.gpu.name), path.placement.ranks);
  system.nodes = path.placement.nodes;
  system.nvlink = path.intra > fastest_pcie;
  const double each = 1e-9 / static_cast<double>(system.channels);
  if (!system.nvlink) system.intra_gbs = path.intra.base() * each;
  if (path.crosses_nodes()) system.inter_gbs = path.bandwidth().base() * each;
  return system;
}

}  // namespace shardsim
