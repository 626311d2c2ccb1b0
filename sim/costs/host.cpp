// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/host.hpp"

#include <algorithm>

namespace shardsim {

/// The driver's launch is the machine's, what stands before it the stack's; a core of twice the speed halves both.
HostCosts::HostCosts(const Profile& profile, const Stack& stack)
    : kernel_{profile.gpu.kernel_launch + stack.kernel, profile.gpu.kernel_launch + stack.compiled_kernel,
              profile.gpu.kernel_launch + stack.library_kernel},
      collective_((profile.gpu.collective_launch + stack.collective) / profile.node.host_speed),
      calls_(stack.calls) {
  for (Seconds& time : kernel_) time = time / profile.node.host_speed;
  for (Seconds& time : calls_) time = time / profile.node.host_speed;
}

Seconds HostCosts::kernels(std::int32_t count, Launcher launcher) const { return kernel_[static_cast<std::size_t>(launcher)] * count; }

Seconds HostCosts::calls(const HostWork& work) const {
  Seconds sum;
  for (std::size_t i = 0; i < host_call_count; ++i)
    if (work.calls[i] > 0) sum += calls_[i] * work.calls[i];
  return sum;
}

}  // namespace shardsim
