// SPDX-License-Identifier: Apache-2.0
// One GPU as one rank uses it: a stream on which everything happens in the order of the calls, a pool for buffers, one for scratch.
// For nvcc only.
#pragma once

#include <map>

#include "calibrate/execute/backends/device.hpp"
#include "calibrate/gpu/device_math.hpp"
#include "calibrate/gpu/status.hpp"

namespace shardsim::gpu {

class Stream {
 public:
  Stream() { SHARDSIM_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] cudaStream_t get() const { return stream_; }
  void wait() const { SHARDSIM_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// A pool of one rank on its device. Memory comes and goes in the order of the stream.
class Pool {
 public:
  Pool(int device, const Stream& stream);
  ~Pool() { cudaMemPoolDestroy(pool_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
  /// Null if there is none left.
  [[nodiscard]] void* take(std::size_t bytes);
  void give(void* memory) { cudaFreeAsync(memory, stream_.get()); }  // called by destructors: an error shows at the next wait
  [[nodiscard]] std::size_t attribute(cudaMemPoolAttr which) const;
  void reset_high_water();

 private:
  cudaMemPool_t pool_ = nullptr;
  const Stream& stream_;
};

/// What DeviceMath launches with.
class CudaLaunch {
 public:
  CudaLaunch(Pool& pool, const Stream& stream);
  ~CudaLaunch() { cublasDestroy(blas_); }
  CudaLaunch(const CudaLaunch&) = delete;
  CudaLaunch& operator=(const CudaLaunch&) = delete;

  float* take(std::size_t count);
  void give(float* data) { pool_.give(data); }
  template <class F>
  void each(Index n, const F& f);
  void product(const Product& product);
  void copy(const void* from, void* to, std::size_t bytes);
  void upload(const void* host, void* device, std::size_t bytes);
  void download(const void* device, void* host, std::size_t bytes);

 private:
  Pool& pool_;
  const Stream& stream_;
  cublasHandle_t blas_ = nullptr;
};

class CudaDevice final : public execute::Device {
 public:
  explicit CudaDevice(int index);
  ~CudaDevice() override;
  std::byte* allocate(std::size_t bytes) override;
  void free(std::byte* memory) override { buffers_.give(memory); }
  void fill(std::byte* memory, std::size_t bytes, unsigned char value) override;
  void upload(const std::byte* host, std::byte* memory, std::size_t bytes) override { launch_.upload(host, memory, bytes); }
  void download(const std::byte* memory, std::byte* host, std::size_t bytes) override { launch_.download(memory, host, bytes); }
  execute::Math& math() override { return math_; }
  execute::PoolUse pool() override;
  std::size_t footprint(std::size_t bytes) override;
  void wait() override { stream_.wait(); }
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

 private:
  /// Before any other member: the rest is made on this device.
  struct Chosen {
    explicit Chosen(int index);
    int index;
  };
  Chosen chosen_;
  Stream stream_;
  Pool buffers_, scratch_;
  CudaLaunch launch_;
  DeviceMath<CudaLaunch> math_;
  std::size_t granularity_ = 1;
  std::map<std::size_t, std::size_t> footprints_;  // by size, as asked
};

}  // namespace shardsim::gpu
