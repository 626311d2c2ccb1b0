// SPDX-License-Identifier: Apache-2.0
// A software stack: what the frameworks on a machine cost, whatever the machine. Shipped in scenarios/stacks or written by hand; the format
// is documented in docs/stacks.md. Every value has an origin.
#pragma once

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "sim/base/problem.hpp"
#include "sim/base/software.hpp"
#include "sim/base/units.hpp"
#include "sim/config/node.hpp"

namespace shardsim {

/// A default one costs nothing: what is left is the machine's.
struct Stack {
  std::string name;
  std::string file;  ///< where it was read from
  std::string description;
  Seconds kernel;           ///< of the host, for each kernel of eager code beyond the driver's launch: Python, dispatcher, autograd
  Seconds compiled_kernel;  ///< the same in compiled code
  Seconds library_kernel;   ///< the same for kernels that libraries launch from C++: copies of buckets, multi-tensor optimizers
  Seconds collective;       ///< of the host, for each collective beyond the profile's launch
  std::array<Seconds, host_call_count> calls{};  ///< of the host, by HostCall
  FusedKernels fused;
  /// Class factors: the rate of this stack's kernels over that of the kernels that the profile measured.
  struct Rates {
    double products = 1, attention = 1, memory_bound = 1, optimizer = 1;
  } rates;
  std::map<std::string, std::string> origins;  ///< dotted key -> where the value is from
};

/// The stack that `root` describes. Unknown keys and values out of range are problems; what is left out costs nothing.
[[nodiscard]] Result<Stack> read_stack(const ConfigNode& root);
/// The stack as YAML that read_stack gives back unchanged.
[[nodiscard]] std::string to_yaml(const Stack& stack);
/// Origin of a dotted key or of the nearest enclosing section; empty if none is given.
[[nodiscard]] std::string origin_of(const Stack& stack, std::string_view key);

}  // namespace shardsim
