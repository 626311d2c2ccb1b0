// SPDX-License-Identifier: Apache-2.0
// What a build without CUDA says.
#include "sim/base/problem.hpp"

#ifndef SHARDSIM_GPU

#include "calibrate/measure/gpu.hpp"

namespace shardsim {
namespace {

[[noreturn]] void refuse(const char* command) {
  throw EnvironmentError(
      std::string("calibrate ") + command +
      ": no CUDA GPU can be used, because this build has no CUDA support; configure with -DSHARDSIM_GPU=ON (cmake --preset cuda) on "
      "a machine with the CUDA toolkit" +
      (std::string(command) == "nccl" ? " and NCCL" : ""));
}

}  // namespace

Profile calibrate_cuda(Profile, const std::string&, const Progress&) { refuse("cuda"); }
std::optional<Profile> calibrate_nccl(Profile, const NcclOptions&, const Progress&) { refuse("nccl"); }

}  // namespace shardsim

#endif
