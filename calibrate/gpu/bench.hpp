// SPDX-License-Identifier: Apache-2.0
// What the microbenchmarks of one GPU share: memory, random data, device time. Random data everywhere: products of zeros run up to 15 %
// faster than those of data. For nvcc only.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <vector>

#include "calibrate/gpu/status.hpp"

namespace shardsim::gpu {

/// Memory of the current device that frees itself.
class Memory {
 public:
  explicit Memory(std::size_t bytes) { SHARDSIM_CHECK(cudaMalloc(&data_, bytes)); }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] void* get() const { return data_; }
  [[nodiscard]] __nv_bfloat16* numbers() const { return static_cast<__nv_bfloat16*>(data_); }
  [[nodiscard]] float* floats() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
};

/// bf16 numbers in [-1, 1).
void fill_random(const Memory& memory, std::size_t count, unsigned seed, cudaStream_t stream = nullptr);

/// Two events and the device time between them.
class Stopwatch {
 public:
  Stopwatch() {
    SHARDSIM_CHECK(cudaEventCreate(&begin_));
    SHARDSIM_CHECK(cudaEventCreate(&end_));
  }
  ~Stopwatch() {
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (end_ != nullptr) cudaEventDestroy(end_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  /// Seconds that `work`, issued on `stream`, takes there.
  template <class Work>
  double time(const Work& work, cudaStream_t stream = nullptr) {
    SHARDSIM_CHECK(cudaEventRecord(begin_, stream));
    work();
    SHARDSIM_CHECK(cudaEventRecord(end_, stream));
    SHARDSIM_CHECK(cudaEventSynchronize(end_));
    float milliseconds = 0;
    SHARDSIM_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Median device time in seconds of `work`, after three runs to warm up.
template <class Work>
double device_time(int repetitions, const Work& work, cudaStream_t stream = nullptr) {
  Stopwatch watch;
  for (int i = 0; i < 3; ++i) work();
  std::vector<double> times(static_cast<std::size_t>(repetitions));
  for (double& time : times) time = watch.time(work, stream);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// cuBLAS on bf16 with fp32 accumulation.
class Blas {
 public:
  explicit Blas(cudaStream_t stream = nullptr) {
    SHARDSIM_CHECK(cublasCreate(&handle_));
    SHARDSIM_CHECK(cublasSetStream(handle_, stream));
  }
  ~Blas() { cublasDestroy(handle_); }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  /// c = a b, row-major (m, k) by (k, n). cuBLAS is column-major, so the operands change places.
  void product(const Memory& a, const Memory& b, const Memory& c, int m, int n, int k) const {
    const float one = 1, zero = 0;
    SHARDSIM_CHECK(cublasGemmEx(handle_, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &one, b.get(), CUDA_R_16BF, n, a.get(), CUDA_R_16BF, k, &zero,
                                c.get(), CUDA_R_16BF, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }
  [[nodiscard]] cublasHandle_t get() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

}  // namespace shardsim::gpu
