// SPDX-License-Identifier: Apache-2.0
// The host's side of the GPU microbenchmarks: what is measured, and where it goes in the profile.
#ifdef SHARDSIM_GPU

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "calibrate/collective_samples.hpp"
#include "calibrate/gemm_fit.hpp"
#include "calibrate/gpu.hpp"
#include "calibrate/gpu/check.hpp"
#include "calibrate/gpu_device.hpp"
#include "sim/core/problem.hpp"

namespace shardsim {
namespace {

/// Products of transformer layers (projections of hidden sizes 2048 to 8192, forward) and a spread of others, some off the tile sizes.
std::vector<std::array<int, 3>> shapes() {
  std::vector<std::array<int, 3>> all;
  for (const int tokens : {1024, 4096, 16384})
    for (const int hidden : {2048, 4096, 8192})
      for (const auto& [n, k] : {std::pair{hidden, hidden}, {3 * hidden, hidden}, {4 * hidden, hidden}, {hidden, 4 * hidden}}) all.push_back({tokens, n, k});
  for (const int m : {1, 16, 128, 1000, 3000})
    for (const int n : {256, 1000, 4096})
      for (const int k : {256, 4096}) all.push_back({m, n, k});
  return all;
}

template <class Measure>
auto measured(const char* command, const Measure& measure) {
  try {
    return measure();
  } catch (const gpu::Failure& failure) {
    throw EnvironmentError(fmt::format("calibrate {}: {}", command, failure.what()));
  }
}

}  // namespace

Profile calibrate_cuda(Profile base, const Progress& progress) {
  if (gpu::device_count() == 0) throw EnvironmentError("calibrate cuda: no CUDA GPU found on this machine");
  return measured("cuda", [&] {
    Gpu& gpu = base.gpu;
    const gpu::Device device = gpu::describe_device();
    gpu.name = device.name;
    gpu.capacity = Bytes{device.memory};
    gpu.multiprocessors = device.multiprocessors;
    if (gpu.peak.empty()) throw EnvironmentError("calibrate cuda: --base is missing: the peak of this GPU is taken from a profile, not measured");
    progress(0, "copies and launches");
    gpu.device_kernel_gap = Seconds{gpu::kernel_gap_seconds()};
    const ByteRate copy{gpu::copy_bytes_per_second(std::size_t{1} << 30)};
    gpu.elementwise_efficiency = copy / gpu.memory_bandwidth;
    gpu.host_link = ByteRate{gpu::host_link_bytes_per_second(std::size_t{256} << 20)};
    GemmPoints points;
    const auto all = shapes();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto [m, n, k] = all[i];
      progress(0.1 + 0.9 * static_cast<double>(i) / static_cast<double>(all.size()), fmt::format("product {} x {} x {}", m, n, k));
      points.push_back({m, n, k, Seconds{gpu::product_seconds(m, n, k)}});
    }
    gpu.gemm = fit_gemm(gpu, points);
    gpu.gemm.table = points;
    for (const char* key : {"gpu.name", "gpu.capacity", "gpu.multiprocessors", "gpu.device_kernel_gap", "gpu.elementwise_efficiency", "gpu.host_link", "gpu.gemm"})
      base.origins[key] = "measured: calibrate cuda on " + device.name;
    progress(1, "done");
    return base;
  });
}

Profile calibrate_nccl(Profile base, const Progress& progress) {
  const int devices = gpu::device_count();
  if (devices < 2) throw EnvironmentError(fmt::format("calibrate nccl: {} GPU found on this machine, two are needed", devices));
  return measured("nccl", [&] {
    std::vector<long long> sizes;
    for (int e = 10; e <= 30; ++e) sizes.push_back(1LL << e);
    progress(0, fmt::format("collectives between {} GPUs", devices));
    CollectiveSamples samples;
    const std::string origin = "measured: calibrate nccl, NCCL " + gpu::nccl_version() + ", one process, 10 calls in a row";
    for (const auto& timing : gpu::nccl_timings({0, 1, 2, 3}, sizes, 5)) {
      const CollectiveSamples::Group group{all_collectives[static_cast<std::size_t>(timing.collective)], devices, 1};
      samples.add(group, Bytes{timing.bytes}, Seconds{timing.seconds});
      samples.note_origin(group, origin);
    }
    progress(1, "done");
    return with_fits(std::move(base), samples.fits());
  });
}

}  // namespace shardsim

#endif
