// SPDX-License-Identifier: Apache-2.0
// What a machine says of itself: GPUs, NICs, memory, libraries by version. Nothing is measured.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/machine/profile.hpp"

namespace shardsim {

struct FoundGpu {
  std::string name, driver;
  Bytes memory;  ///< as nvidia-smi counts it
  int pcie_generation = 0, pcie_lanes = 0;
};

struct FoundNic {
  std::string name, kind;  ///< "mlx5_0", "InfiniBand"
  ByteRate rate;
};

struct FoundLibrary {
  std::string name, version;
};

struct MachineFacts {
  std::string processor;
  std::int64_t cores = 0;
  Bytes memory;
  std::vector<FoundGpu> gpus;
  std::vector<FoundNic> nics;
  std::vector<FoundLibrary> libraries;
  std::string topology;  ///< of `nvidia-smi topo -m`; empty where there is none
};

/// Where to look; tests look elsewhere.
struct Lookout {
  std::string root;  ///< in front of /proc and /sys
  /// Standard output of a shell command; empty where it fails.
  std::function<std::string(const std::string&)> run;
};
[[nodiscard]] Lookout this_machine();

[[nodiscard]] MachineFacts look_at_machine(const Lookout& lookout);

/// The profile that `base` becomes with what was found in place of the base's: a file that builds on it.
[[nodiscard]] std::string profile_of(const MachineFacts& facts, const std::string& base);

}  // namespace shardsim
