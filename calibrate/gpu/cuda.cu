// SPDX-License-Identifier: Apache-2.0
// Microbenchmarks of one GPU: launches, products, copies.
#include <chrono>
#include <cstddef>

#include "calibrate/gpu/bench.hpp"
#include "calibrate/gpu/gpu_device.hpp"

namespace shardsim::gpu {
namespace {

__global__ void empty_kernel() {}

__global__ void fill(__nv_bfloat16* data, std::size_t count, unsigned seed) {
  for (std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    unsigned x = static_cast<unsigned>(i) * 2654435761U + seed;
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    data[i] = __float2bfloat16(static_cast<float>(x & 0xffffU) / 32768.0F - 1.0F);
  }
}

/// Pinned memory of the host.
class Pinned {
 public:
  explicit Pinned(std::size_t bytes) { SHARDSIM_CHECK(cudaMallocHost(&data_, bytes)); }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  [[nodiscard]] void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

}  // namespace

void fill_random(const Memory& memory, std::size_t count, unsigned seed, cudaStream_t stream) {
  fill<<<1024, 256, 0, stream>>>(memory.numbers(), count, seed);
  SHARDSIM_CHECK(cudaGetLastError());
}

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

Device describe_device(int index) {
  cudaDeviceProp properties{};
  SHARDSIM_CHECK(cudaGetDeviceProperties(&properties, index));
  return {properties.name, static_cast<long long>(properties.totalGlobalMem), properties.multiProcessorCount};
}

LaunchCost launch_cost() {
  constexpr int kernels = 1000;
  const auto launch_all = [] {
    for (int i = 0; i < kernels; ++i) empty_kernel<<<1, 1>>>();
  };
  LaunchCost cost;
  cost.device_gap = device_time(9, launch_all) / kernels;
  // The host's side, few enough that the queue never fills up and makes the host wait.
  constexpr int few = 200;
  std::vector<double> times;
  for (int round = 0; round < 9; ++round) {
    SHARDSIM_CHECK(cudaDeviceSynchronize());
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < few; ++i) empty_kernel<<<1, 1>>>();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / few);
  }
  SHARDSIM_CHECK(cudaGetLastError());
  SHARDSIM_CHECK(cudaDeviceSynchronize());
  std::sort(times.begin(), times.end());
  cost.host_issue = times[times.size() / 2];
  return cost;
}

double product_seconds(int m, int n, int k) {
  const auto elements = [](int rows, int columns) { return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns); };
  Memory a(2 * elements(m, k)), b(2 * elements(k, n)), c(2 * elements(m, n));
  fill_random(a, elements(m, k), 1);
  fill_random(b, elements(k, n), 2);
  const Blas blas;
  return device_time(11, [&] { blas.product(a, b, c, m, n, k); });
}

double copy_bytes_per_second(std::size_t bytes) {
  Memory from(bytes), to(bytes);
  fill_random(from, bytes / 2, 3);
  return 2.0 * static_cast<double>(bytes) /
         device_time(11, [&] { SHARDSIM_CHECK(cudaMemcpyAsync(to.get(), from.get(), bytes, cudaMemcpyDeviceToDevice)); });
}

HostLink host_link(std::size_t bytes) {
  const Memory device(bytes);
  const Pinned host(bytes);
  const double up = device_time(7, [&] { SHARDSIM_CHECK(cudaMemcpyAsync(device.get(), host.get(), bytes, cudaMemcpyHostToDevice)); });
  const double down = device_time(7, [&] { SHARDSIM_CHECK(cudaMemcpyAsync(host.get(), device.get(), bytes, cudaMemcpyDeviceToHost)); });
  return {static_cast<double>(bytes) / up, static_cast<double>(bytes) / down};
}

}  // namespace shardsim::gpu
