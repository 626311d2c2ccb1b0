// SPDX-License-Identifier: Apache-2.0
// What GPUs of one generation have in common, for profiles that do not say it.
#pragma once

#include <string>
#include <string_view>

#include "sim/base/units.hpp"

namespace shardsim {

struct GpuGeneration {
  std::string_view name;    ///< "Ada"
  Bytes context;            ///< device memory of a process that has run PyTorch kernels, outside the allocator
  std::string_view origin;  ///< where the figure is from
};

/// By the product's name, as drivers and data sheets write it; a generation without a name where it is not known.
[[nodiscard]] const GpuGeneration& generation_of(std::string_view gpu);

/// Memory of one NCCL communicator with its channels, where a profile does not say it.
inline constexpr Bytes usual_nccl_communicator = mebibytes(392);

}  // namespace shardsim
