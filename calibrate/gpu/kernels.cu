// SPDX-License-Identifier: Apache-2.0
// Microbenchmarks of memory-bound kernels, of a fused AdamW and of attention in pieces (products and a softmax).
#include <cmath>
#include <cstddef>

#include "calibrate/gpu/bench.hpp"
#include "calibrate/gpu/gpu_device.hpp"

namespace shardsim::gpu {
namespace {

constexpr int threads = 256;
constexpr unsigned warp_threads = 32;

/// One block for each multiprocessor's worth of threads, several times over; kernels stride over the rest.
unsigned blocks_for(std::size_t work) {
  const std::size_t blocks = (work + threads - 1) / threads;
  return static_cast<unsigned>(blocks < 8192 ? blocks : 8192);
}

__device__ std::size_t first_index() { return blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x; }
__device__ std::size_t index_step() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

/// c = a + b on pairs of numbers: 12 bytes move for each pair.
__global__ void __launch_bounds__(threads) add(const __nv_bfloat162* a, const __nv_bfloat162* b, __nv_bfloat162* c, std::size_t pairs) {
  for (std::size_t i = first_index(); i < pairs; i += index_step()) c[i] = __hadd2(a[i], b[i]);
}

__device__ float warp_sum(float value) {
  for (int offset = warp_threads / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffU, value, offset);
  return value;
}
__device__ float warp_max(float value) {
  for (int offset = warp_threads / 2; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, offset));
  return value;
}

/// RMS norm of rows, a warp each: read twice (the second time from the cache), written once.
__global__ void __launch_bounds__(threads) rms_norm(const __nv_bfloat162* x, __nv_bfloat162* y, std::size_t rows, int pairs) {
  const std::size_t warps = index_step() / warp_threads;
  const int lane = static_cast<int>(threadIdx.x % warp_threads);
  for (std::size_t row = first_index() / warp_threads; row < rows; row += warps) {
    const __nv_bfloat162* from = x + row * static_cast<std::size_t>(pairs);
    float squares = 0;
    for (int i = lane; i < pairs; i += static_cast<int>(warp_threads)) {
      const float2 v = __bfloat1622float2(from[i]);
      squares += v.x * v.x + v.y * v.y;
    }
    const float inverse = rsqrtf(warp_sum(squares) / static_cast<float>(2 * pairs) + 1e-5F);
    for (int i = lane; i < pairs; i += static_cast<int>(warp_threads)) {
      const float2 v = __bfloat1622float2(from[i]);
      y[row * static_cast<std::size_t>(pairs) + i] = __floats2bfloat162_rn(v.x * inverse, v.y * inverse);
    }
  }
}

/// AdamW on fp32 master weights and moments with bf16 gradients and weights: 28 bytes move for each weight.
__global__ void __launch_bounds__(threads)
    adamw(float* master, float* first, float* second, const __nv_bfloat16* gradients, __nv_bfloat16* weights, std::size_t count) {
  for (std::size_t i = first_index(); i < count; i += index_step()) {
    const float g = __bfloat162float(gradients[i]);
    const float m = first[i] + 0.1F * (g - first[i]), v = 0.95F * second[i] + 0.05F * g * g;
    const float w = master[i] * (1.0F - 1e-5F) - 1e-4F * m / (sqrtf(v) + 1e-8F);
    first[i] = m;
    second[i] = v;
    master[i] = w;
    weights[i] = __float2bfloat16(w);
  }
}

/// Causal softmax of rows of scores in place, a warp each; row r sees columns 0 ... r % columns.
__global__ void __launch_bounds__(threads) causal_softmax(__nv_bfloat16* scores, std::size_t rows, int columns, float scale) {
  const std::size_t warps = index_step() / warp_threads;
  const int lane = static_cast<int>(threadIdx.x % warp_threads);
  for (std::size_t row = first_index() / warp_threads; row < rows; row += warps) {
    __nv_bfloat16* at = scores + row * static_cast<std::size_t>(columns);
    const int seen = static_cast<int>(row % static_cast<std::size_t>(columns)) + 1;
    float top = -INFINITY;
    for (int i = lane; i < seen; i += static_cast<int>(warp_threads)) top = fmaxf(top, __bfloat162float(at[i]));
    top = warp_max(top);
    float total = 0;
    for (int i = lane; i < seen; i += static_cast<int>(warp_threads)) total += __expf(scale * (__bfloat162float(at[i]) - top));
    total = warp_sum(total);
    for (int i = lane; i < columns; i += static_cast<int>(warp_threads))
      at[i] = __float2bfloat16(i < seen ? __expf(scale * (__bfloat162float(at[i]) - top)) / total : 0.0F);
  }
}

void good_launch() { SHARDSIM_CHECK(cudaGetLastError()); }

}  // namespace

KernelRates kernel_rates(std::size_t bytes) {
  KernelRates rates;
  const std::size_t pairs = bytes / 4;
  {
    const Memory a(bytes), b(bytes), c(bytes);
    fill_random(a, bytes / 2, 1);
    fill_random(b, bytes / 2, 2);
    const auto as_pairs = [](const Memory& m) { return static_cast<__nv_bfloat162*>(m.get()); };
    rates.add = 12.0 * static_cast<double>(pairs) / device_time(11, [&] {
                  add<<<blocks_for(pairs), threads>>>(as_pairs(a), as_pairs(b), as_pairs(c), pairs);
                  good_launch();
                });
    constexpr int row_pairs = 2048;
    const std::size_t rows = pairs / row_pairs;
    rates.norm = 8.0 * static_cast<double>(rows * row_pairs) / device_time(11, [&] {
                   rms_norm<<<blocks_for(rows * warp_threads), threads>>>(as_pairs(a), as_pairs(c), rows, row_pairs);
                   good_launch();
                 });
  }
  const std::size_t weights = bytes / 4;
  const Memory master(4 * weights), first(4 * weights), second(4 * weights), gradients(2 * weights), stored(2 * weights);
  for (const Memory* m : {&master, &first, &second}) SHARDSIM_CHECK(cudaMemset(m->get(), 0, 4 * weights));
  fill_random(gradients, weights, 3);
  rates.adamw = 28.0 * static_cast<double>(weights) / device_time(11, [&] {
                  adamw<<<blocks_for(weights), threads>>>(master.floats(), first.floats(), second.floats(), gradients.numbers(),
                                                          stored.numbers(), weights);
                  good_launch();
                });
  return rates;
}

double attention_seconds(int maps, int tokens, int head_dim) {
  const std::size_t vectors = static_cast<std::size_t>(maps) * static_cast<std::size_t>(tokens) * static_cast<std::size_t>(head_dim);
  const std::size_t scores_count = static_cast<std::size_t>(maps) * static_cast<std::size_t>(tokens) * static_cast<std::size_t>(tokens);
  const Memory q(2 * vectors), k(2 * vectors), v(2 * vectors), context(2 * vectors), scores(2 * scores_count);
  fill_random(q, vectors, 1);
  fill_random(k, vectors, 2);
  fill_random(v, vectors, 3);
  const Blas blas;
  const float one = 1, zero = 0, scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
  const long long vector_stride = static_cast<long long>(tokens) * head_dim, map_stride = static_cast<long long>(tokens) * tokens;
  return device_time(7, [&] {
    // Row-major scores = q k^T, context = p v, each map by itself (column-major: the operands change places).
    SHARDSIM_CHECK(cublasGemmStridedBatchedEx(blas.get(), CUBLAS_OP_T, CUBLAS_OP_N, tokens, tokens, head_dim, &one, k.get(), CUDA_R_16BF,
                                              head_dim, vector_stride, q.get(), CUDA_R_16BF, head_dim, vector_stride, &zero, scores.get(),
                                              CUDA_R_16BF, tokens, map_stride, maps, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    const std::size_t rows = static_cast<std::size_t>(maps) * static_cast<std::size_t>(tokens);
    causal_softmax<<<blocks_for(rows * warp_threads), threads>>>(scores.numbers(), rows, tokens, scale);
    good_launch();
    SHARDSIM_CHECK(cublasGemmStridedBatchedEx(blas.get(), CUBLAS_OP_N, CUBLAS_OP_N, head_dim, tokens, tokens, &one, v.get(), CUDA_R_16BF,
                                              head_dim, vector_stride, scores.get(), CUDA_R_16BF, tokens, map_stride, &zero, context.get(),
                                              CUDA_R_16BF, head_dim, vector_stride, maps, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  });
}

}  // namespace shardsim::gpu
