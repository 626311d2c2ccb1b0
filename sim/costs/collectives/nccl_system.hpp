// SPDX-License-Identifier: Apache-2.0
// A profile as NCCL's tuner would see the machine.
#pragma once

#include <string_view>

#include "sim/costs/collectives/collective_placement.hpp"
#include "sim/costs/collectives/nccl_tuner.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

/// By the product's name: "NVIDIA H100 SXM5 80GB" is Hopper. What is not known counts as Ampere.
[[nodiscard]] GpuGeneration generation_of(std::string_view gpu);

/// Share of a ring's bandwidth that NVLS reaches (NCCL src/graph/tuning.cc).
[[nodiscard]] double nvls_efficiency(GpuGeneration generation);

/// Channels and their speed inside a node as the published searches find them, between nodes the group's share of the NICs.
[[nodiscard]] NcclSystem nccl_system(const Profile& profile, const RingPath& path);

}  // namespace shardsim
