// SPDX-License-Identifier: Apache-2.0
// Time of the host: launches, and the calls of Python and C++ around them.
#pragma once

#include "sim/machine/profile.hpp"
#include "sim/machine/stack.hpp"
#include "sim/schedule/schedule.hpp"

namespace shardsim {

/// Who launches a kernel: eager code of the model, code that torch.compile made, or a library from C++.
enum class Launcher : std::uint8_t { eager, compiled, library };

class HostCosts {
 public:
  HostCosts(const Profile& profile, const Stack& stack);
  [[nodiscard]] Seconds kernels(std::int32_t count, Launcher launcher) const;
  [[nodiscard]] Seconds collective() const { return collective_; }
  [[nodiscard]] Seconds calls(const HostWork& work) const;

 private:
  std::array<Seconds, 3> kernel_;  // by launcher
  Seconds collective_;
  std::array<Seconds, host_call_count> calls_;
};

}  // namespace shardsim
