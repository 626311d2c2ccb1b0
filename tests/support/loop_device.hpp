// SPDX-License-Identifier: Apache-2.0
// A GPU that is none: the device's kernels, run by a loop on the host, with a pool that counts as CUDA's does.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "calibrate/execute/backends/device.hpp"
#include "calibrate/gpu/device_math.hpp"

namespace shardsim::test {

struct LoopLaunch {
  float* take(std::size_t count) {
    ++live;
    return new float[count];
  }
  void give(float* data) {
    --live;
    delete[] data;
  }
  template <class F>
  void each(gpu::Index n, const F& f) {
    for (gpu::Index i = n; i-- > 0;) f(i);  // backwards: the order must not matter
  }
  void product(const gpu::Product& p) {
    for (gpu::Index i = 0; i < p.m; ++i)
      for (gpu::Index j = 0; j < p.n; ++j) {
        float sum = p.accumulate ? p.c[i * p.ldc + j] : 0.0F;
        for (gpu::Index l = 0; l < p.k; ++l)
          sum += p.a[p.a_transposed ? l * p.lda + i : i * p.lda + l] * p.b[p.b_transposed ? j * p.ldb + l : l * p.ldb + j];
        p.c[i * p.ldc + j] = sum;
      }
  }
  void copy(const void* from, void* to, std::size_t bytes) { move(from, to, bytes); }
  void upload(const void* host, void* device, std::size_t bytes) { move(host, device, bytes); }
  void download(const void* device, void* host, std::size_t bytes) { move(device, host, bytes); }
  static void move(const void* from, void* to, std::size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  int live = 0;  // scratch not given back
};

class LoopDevice final : public execute::Device {
 public:
  static constexpr std::size_t granularity = 512;

  std::byte* allocate(std::size_t bytes) override {
    auto* memory = static_cast<std::byte*>(std::calloc(std::max<std::size_t>(1, bytes), 1));
    sizes_[memory] = footprint(bytes);
    used_ += sizes_[memory];
    high_ = std::max(high_, used_);
    return memory;
  }
  void free(std::byte* memory) override {
    used_ -= sizes_.at(memory);
    sizes_.erase(memory);
    std::free(memory);
  }
  void fill(std::byte* memory, std::size_t bytes, unsigned char value) override { std::memset(memory, value, bytes); }
  void upload(const std::byte* host, std::byte* memory, std::size_t bytes) override { LoopLaunch::move(host, memory, bytes); }
  void download(const std::byte* memory, std::byte* host, std::size_t bytes) override { LoopLaunch::move(memory, host, bytes); }
  execute::Math& math() override { return math_; }
  execute::PoolUse pool() override { return {high_, high_, granularity, std::size_t{1} << 30, std::size_t{2} << 30}; }
  std::size_t footprint(std::size_t bytes) override {
    return (std::max<std::size_t>(1, bytes) + granularity - 1) / granularity * granularity;
  }
  void wait() override {}
  [[nodiscard]] const LoopLaunch& launch() const { return launch_; }

 private:
  LoopLaunch launch_;
  gpu::DeviceMath<LoopLaunch> math_{launch_};
  std::map<std::byte*, std::size_t> sizes_;
  std::size_t used_ = 0, high_ = 0;
};

}  // namespace shardsim::test
