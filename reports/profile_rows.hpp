// SPDX-License-Identifier: Apache-2.0
// A profile as rows: what `calibrate show` prints, draws and writes as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/base/json_value.hpp"
#include "sim/machine/profile.hpp"

namespace shardsim {

struct ProfileValue {
  std::string key;    ///< "gpu.gemm.launch"
  std::string value;  ///< "3.5 us"
  std::string origin;
};
/// What the profile says of the machine, in its order; nothing where it describes no GPU.
[[nodiscard]] std::vector<ProfileValue> profile_values(const Profile& profile);

struct CurvePoint {
  Bytes size;
  std::optional<Seconds> measured;
  Seconds fitted;
  double bus_gigabytes = 0;  ///< GB/s of bus bandwidth, of the measured time where there is one

  [[nodiscard]] double error() const { return fitted / *measured - 1; }  ///< of the fit, relative
};
/// At the measured sizes; without any, at powers of four from 1 KiB to 1 GiB.
[[nodiscard]] std::vector<CurvePoint> curve_points(const CollectiveFit& fit);

/// Bus bandwidth in GB/s, as nccl-tests count it.
[[nodiscard]] double bus_gigabytes(const CollectiveFit& fit, Bytes size, Seconds time);

/// "all_gather, 8 ranks on 1 node, ring simple".
[[nodiscard]] std::string fit_title(const CollectiveFit& fit);

/// Schema shardsim.profile/1.
[[nodiscard]] Json profile_json(const Profile& profile);

}  // namespace shardsim
