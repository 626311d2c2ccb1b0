// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <climits>
#include <cstdint>
#include <memory>

#include "calibrate/gpu/cuda_device.hpp"
#include "calibrate/gpu/gpu_device.hpp"

namespace shardsim::gpu {
namespace {

constexpr int threads = 256;
constexpr Index most_blocks = 1 << 16;  // a thread takes every so manieth index beyond

template <class F>
__global__ void __launch_bounds__(threads) run_each(Index n, F f) {
  const Index step = static_cast<Index>(gridDim.x) * threads;
  for (Index i = static_cast<Index>(blockIdx.x) * threads + threadIdx.x; i < n; i += step) f(i);
}

int as_int(Index value) {
  if (value > INT_MAX) throw Failure("a matrix of " + std::to_string(value) + " rows is too large for cuBLAS");
  return static_cast<int>(value);
}

}  // namespace

// Pools --------------------------------------------------------------------------------------------------------------------------

Pool::Pool(int device, const Stream& stream) : stream_(stream) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.handleTypes = cudaMemHandleTypeNone;
  properties.location.type = cudaMemLocationTypeDevice;
  properties.location.id = device;
  SHARDSIM_CHECK(cudaMemPoolCreate(&pool_, &properties));
  std::uint64_t keep = UINT64_MAX;  // what is freed stays in the pool, as a caching allocator's does
  SHARDSIM_CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep));
}

void* Pool::take(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMallocFromPoolAsync(&memory, std::max<std::size_t>(1, bytes), pool_, stream_.get());
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it is answered for here: later checks must not find it
    return nullptr;
  }
  SHARDSIM_CHECK(status);
  return memory;
}

std::size_t Pool::attribute(cudaMemPoolAttr which) const {
  std::uint64_t value = 0;
  SHARDSIM_CHECK(cudaMemPoolGetAttribute(pool_, which, &value));
  return value;
}

void Pool::reset_high_water() {
  std::uint64_t zero = 0;
  SHARDSIM_CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &zero));
  SHARDSIM_CHECK(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &zero));
}

// Launches -----------------------------------------------------------------------------------------------------------------------

CudaLaunch::CudaLaunch(Pool& pool, const Stream& stream) : pool_(pool), stream_(stream) {
  SHARDSIM_CHECK(cublasCreate(&blas_));
  SHARDSIM_CHECK(cublasSetStream(blas_, stream.get()));
  SHARDSIM_CHECK(cublasSetMathMode(blas_, CUBLAS_PEDANTIC_MATH));  // fp32 as the host has it: no TF32
}

float* CudaLaunch::take(std::size_t count) {
  void* memory = pool_.take(count * sizeof(float));
  if (memory == nullptr) throw Failure("the GPU has no memory left for " + std::to_string(count) + " numbers of scratch");
  return static_cast<float*>(memory);
}

template <class F>
void CudaLaunch::each(Index n, const F& f) {
  if (n <= 0) return;
  const auto blocks = static_cast<unsigned>(std::min((n + threads - 1) / threads, most_blocks));
  run_each<<<blocks, threads, 0, stream_.get()>>>(n, f);
  SHARDSIM_CHECK(cudaGetLastError());
}

/// cuBLAS is column-major: what lies there row-major is its transpose, so the operands change places (c^T = b^T a^T).
void CudaLaunch::product(const Product& p) {
  if (p.m == 0 || p.n == 0 || p.k == 0) return;
  const float one = 1.0F, factor = p.accumulate ? 1.0F : 0.0F;
  SHARDSIM_CHECK(cublasSgemm(blas_, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, as_int(p.n),
                             as_int(p.m), as_int(p.k), &one, p.b, as_int(p.ldb), p.a, as_int(p.lda), &factor, p.c, as_int(p.ldc)));
}

void CudaLaunch::copy(const void* from, void* to, std::size_t bytes) {
  if (bytes > 0) SHARDSIM_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_.get()));
}

/// Waits: the host's memory is the caller's again when this returns.
void CudaLaunch::upload(const void* host, void* device, std::size_t bytes) {
  if (bytes == 0) return;
  SHARDSIM_CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_.get()));
  stream_.wait();
}

void CudaLaunch::download(const void* device, void* host, std::size_t bytes) {
  if (bytes == 0) return;
  SHARDSIM_CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_.get()));
  stream_.wait();
}

// The device ---------------------------------------------------------------------------------------------------------------------

CudaDevice::Chosen::Chosen(int device) : index(device) {
  SHARDSIM_CHECK(cudaSetDevice(device));
  int pools = 0;
  SHARDSIM_CHECK(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device));
  if (pools == 0) throw Failure("GPU " + std::to_string(device) + " or its driver has no stream-ordered memory pools (cudaMallocAsync)");
}

CudaDevice::CudaDevice(int index)
    : chosen_(index), buffers_(index, stream_), scratch_(index, stream_), launch_(scratch_, stream_), math_(launch_) {
  granularity_ = footprint(1);
  buffers_.reset_high_water();
}

/// Pools must not go while the stream still uses their memory.
CudaDevice::~CudaDevice() { cudaStreamSynchronize(stream_.get()); }

/// The stream is waited for first, so that what was freed counts as free whenever the driver keeps its books: when a call is made, or
/// when the stream gets there.
std::byte* CudaDevice::allocate(std::size_t bytes) {
  stream_.wait();
  auto* memory = static_cast<std::byte*>(buffers_.take(bytes));
  if (memory != nullptr) fill(memory, bytes, 0);
  return memory;
}

void CudaDevice::fill(std::byte* memory, std::size_t bytes, unsigned char value) {
  if (bytes > 0) SHARDSIM_CHECK(cudaMemsetAsync(memory, value, bytes, stream_.get()));
}

execute::PoolUse CudaDevice::pool() {
  stream_.wait();
  execute::PoolUse use;
  use.used_high = buffers_.attribute(cudaMemPoolAttrUsedMemHigh);
  use.reserved_high = buffers_.attribute(cudaMemPoolAttrReservedMemHigh);
  use.granularity = granularity_;
  SHARDSIM_CHECK(cudaMemGetInfo(&use.device_free, &use.device_total));
  return use;
}

/// Tried in a pool of its own: how CUDA rounds is not documented.
std::size_t CudaDevice::footprint(std::size_t bytes) {
  const auto [known, fresh] = footprints_.try_emplace(bytes, std::max<std::size_t>(1, bytes));
  if (!fresh) return known->second;
  Pool probe(chosen_.index, stream_);
  void* memory = probe.take(bytes);
  if (memory == nullptr)
    throw Failure("GPU " + std::to_string(chosen_.index) + " has no memory left to try an allocation of " + std::to_string(bytes) +
                  " bytes");
  known->second = std::max(known->second, probe.attribute(cudaMemPoolAttrUsedMemCurrent));
  probe.give(memory);
  stream_.wait();
  return known->second;
}

std::unique_ptr<execute::Device> open_device(int index) { return std::make_unique<CudaDevice>(index); }

std::string pci_bus_id(int index) {
  char id[32] = {};
  SHARDSIM_CHECK(cudaDeviceGetPCIBusId(id, sizeof id, index));
  return id;
}

}  // namespace shardsim::gpu
