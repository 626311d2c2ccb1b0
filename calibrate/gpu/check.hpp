// SPDX-License-Identifier: Apache-2.0
// What the device code throws; the host side turns it into an EnvironmentError.
#pragma once

#include <stdexcept>
#include <string>

namespace shardsim::gpu {

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// "cudaMalloc(&data, bytes) failed (cuda.cu:35): out of memory".
[[noreturn]] inline void throw_failure(const std::string& call, const std::string& file, int line, const std::string& reason) {
  throw Failure(call + " failed (" + file.substr(file.find_last_of('/') + 1) + ":" + std::to_string(line) + "): " + reason);
}

}  // namespace shardsim::gpu
