// SPDX-License-Identifier: Apache-2.0
// A value that a prediction rests on and that nobody measured on the machine in question.
#pragma once

#include <string>
#include <vector>

#include "sim/base/units.hpp"

namespace shardsim {

struct Assumption {
  std::string key;      ///< "network.nic_bandwidth"
  std::string value;    ///< "8 NICs a node of 50.0 GB/s"
  std::string origin;   ///< "product: line rate, one direction"
  double time = 0;      ///< how much longer the step takes if it is a tenth worse, as a share
  Bytes memory;         ///< of the device's peak that rests on it
  std::string measure;  ///< the command that would tell
};

/// The largest effect first.
using Assumptions = std::vector<Assumption>;

}  // namespace shardsim
