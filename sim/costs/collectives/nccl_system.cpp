// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/nccl_system.hpp"

#include <algorithm>
#include <array>

namespace shardsim {
namespace {

constexpr ByteRate fastest_pcie{64e9};  // Gen5 x16: what is faster is NVLink

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

NcclGeneration nccl_generation_of(std::string_view gpu) {
  struct Name {
    std::string_view part;
    NcclGeneration generation;
  };
  using enum NcclGeneration;
  // Compute capability below 80, 90 and 100; GeForce 50 and RTX PRO Blackwell have 120.
  static constexpr std::array<Name, 17> names{{{"B100", blackwell},
                                               {"B200", blackwell},
                                               {"B300", blackwell},
                                               {"GB10", blackwell},
                                               {"RTX 50", blackwell},
                                               {"RTX PRO", blackwell},
                                               {"H100", hopper},
                                               {"H200", hopper},
                                               {"GH200", hopper},
                                               {"H800", hopper},
                                               {"H20", hopper},
                                               {"V100", volta},
                                               {"P100", volta},
                                               {"T4", volta},
                                               {"RTX 20", volta},
                                               {"A100", ampere},
                                               {"A800", ampere}}};
  const auto found = std::ranges::find_if(names, [&](const Name& name) { return has(gpu, name.part); });
  return found == names.end() ? NcclGeneration::ampere : found->generation;
}

std::optional<NcclMachine> nccl_machine(const Profile& profile, ByteRate ring) {
  static constexpr std::array<std::string_view, 6> makes{"NVIDIA", "Tesla", "GeForce", "RTX", "AMD Instinct", "MI300"};
  const std::string& name = profile.gpu.name;
  if (std::ranges::none_of(makes, [&](std::string_view make) { return has(name, make); })) return std::nullopt;
  const NcclGeneration generation = nccl_generation_of(name);
  return NcclMachine{generation, nccl_system(generation, 2).channels, ring > fastest_pcie};
}

NcclSystem nccl_system(const NcclMachine& machine, const RingPath& path) {
  NcclSystem system = nccl_system(machine.generation, path.placement.ranks);
  system.nodes = path.placement.islands();
  system.nvlink = machine.nvlink;
  const double each = 1e-9 / static_cast<double>(system.channels);
  if (!system.nvlink) system.intra_gbs = path.intra.base() * each;
  if (path.crosses_nodes()) system.inter_gbs = path.network.base() * each;
  return system;
}

}  // namespace shardsim
