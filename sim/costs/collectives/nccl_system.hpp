// SPDX-License-Identifier: Apache-2.0
// A profile as NCCL's tuner would see the machine.
#pragma once

#include <optional>
#include <string_view>

#include "sim/costs/collectives/collective_placement.hpp"
#include "sim/costs/collectives/nccl_tuner.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

/// By the product's name: "NVIDIA H100 SXM5 80GB" is Hopper. What is not known counts as Ampere.
[[nodiscard]] NcclGeneration nccl_generation_of(std::string_view gpu);

/// The machine's GPUs as NCCL's (or RCCL's) rules count them; nothing where the profile describes no GPU of NVIDIA or AMD.
[[nodiscard]] std::optional<NcclMachine> nccl_machine(const Profile& profile, ByteRate ring);

/// Channels and their speed inside a node as the published searches find them, between nodes the group's share of the NICs.
[[nodiscard]] NcclSystem nccl_system(const NcclMachine& machine, const RingPath& path);

}  // namespace shardsim
