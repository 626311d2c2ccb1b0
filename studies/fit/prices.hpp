// SPDX-License-Identifier: Apache-2.0
// The prices that measured steps may move: classes of kernels, the host, links; each a factor on the time of what it prices.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/machine/profile.hpp"

namespace shardsim {

/// One value of a profile that a price stands for.
struct PriceKey {
  std::string_view key;  ///< "gpu.gemm.efficiency"
  std::string (*text)(const Profile&);
};

struct Price {
  std::string_view name;    ///< "products"
  std::string_view family;  ///< what moves with it where the steps cannot tell them apart: "kernels", "host", "links"
  double together, apart;   ///< deviations of the logarithm: how much the family, and how much this price alone, differs between machines
  std::vector<PriceKey> keys;
  void (*stretch)(Profile&, double factor);  ///< what it prices takes `factor` times as long
  double (*least)(const Profile&);           ///< the factor below which an efficiency would exceed 1
};

[[nodiscard]] std::span<const Price> prices();

/// The profile with each price stretched by the exponential of its logarithm.
[[nodiscard]] Profile stretched(Profile profile, std::span<const double> logs);

}  // namespace shardsim
