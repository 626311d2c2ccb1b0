// SPDX-License-Identifier: Apache-2.0
// Status codes of CUDA, cuBLAS and NCCL as exceptions.
#pragma once

#include <stdexcept>
#include <string>

namespace shardsim::gpu {

/// What the device code throws; the host side turns it into an EnvironmentError. nvcc sees no header of the project but this and
/// calibrate/gpu_device.hpp: it does not speak all of C++20.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class Status>
void check(Status status, const char* what) {
  if (static_cast<int>(status) != 0) throw Failure(std::string(what) + " failed with status " + std::to_string(static_cast<int>(status)));
}

}  // namespace shardsim::gpu
