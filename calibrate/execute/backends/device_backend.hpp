// SPDX-License-Identifier: Apache-2.0
// A rank's device as a Backend, and the platform that gives each rank one. What the devices are is a parameter: CUDA's GPUs in the product,
// loops on the host in the tests.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "calibrate/execute/backends/backend.hpp"
#include "calibrate/execute/backends/device.hpp"
#include "calibrate/execute/backends/gpu_plan.hpp"
#include "calibrate/execute/backends/nccl_collectives.hpp"

namespace shardsim::execute {

/// What a platform of devices is made of. All are called in the process of a rank, save `find`, which has one of its own: a process
/// that has used CUDA cannot fork.
struct DeviceMaker {
  std::function<std::vector<GpuFacts>()> find;
  OpenDevice open;
  MakeUniqueId make_id;
  JoinGroup join;
  /// Bytes that the rank on this GPU sends over `route` (network or nvlink), and who counts them.
  std::function<ByteCounter(Route route, const GpuFacts& gpu)> counter;
};

/// N processes of this machine, each with a GPU that it may share.
class DevicePlatform final : public Platform {
 public:
  /// `transport` as plan_gpus() takes it. Throws EnvironmentError where no device is found.
  DevicePlatform(DeviceMaker maker, std::string transport);

  [[nodiscard]] std::vector<std::string> run(int ranks, const RankBody& body) override;
  [[nodiscard]] std::unique_ptr<Backend> open(int rank, int ranks, Line& line, const MeshOptions& network) override;
  [[nodiscard]] Bytes predicted_payload(const Schedule& schedule) const override;
  [[nodiscard]] Bytes tolerance(Bytes predicted, std::int64_t collectives) const override;

 private:
  DeviceMaker maker_;
  std::string transport_;
  std::vector<GpuFacts> gpus_;
  GpuPlan plan_;
};

/// GPUs of this machine with CUDA and NCCL. Throws EnvironmentError for none, and in builds without CUDA.
[[nodiscard]] std::unique_ptr<Platform> open_cuda_platform(std::string_view transport);

}  // namespace shardsim::execute
