// SPDX-License-Identifier: Apache-2.0
// How much work a group of kernels is: shapes and bytes, never seconds.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/dtype.hpp"
#include "sim/base/units.hpp"

namespace shardsim {

/// `count` products of (m, k) by (k, n): 2 m n k FLOPs each. As one batched kernel where count > 1.
struct MatrixProduct {
  std::int64_t m = 0, n = 0, k = 0, count = 1;
  [[nodiscard]] Flops flops() const {
    return Flops{2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(count)};
  }
  auto operator<=>(const MatrixProduct&) const = default;
};

/// A flash-attention kernel. FLOPs are counted without a causal discount (the convention of MFU); `density` says which share of them is
/// really computed (0.5 when causal).
struct FlashAttention {
  Flops flops;
  double density = 1;
  std::int64_t head_dim = 0;
  std::int64_t sequence = 0;
  bool backward = false;
  auto operator<=>(const FlashAttention&) const = default;
};

/// What a run of kernels on one stream does. Adding two works puts one after the other.
struct Work {
  std::vector<MatrixProduct> products{};
  std::vector<FlashAttention> attention{};
  Bytes memory{};             ///< bytes read and written by memory-bound kernels (norms, activations, casts, copies)
  std::int32_t kernels = 0;   ///< launches by the host
  DType dtype = DType::bf16;  ///< of the matrix products

  bool compiled = false;  ///< launched by code that torch.compile made

  /// Attention has no narrow format: beside fp8 products it runs in bf16.
  [[nodiscard]] DType attention_dtype() const { return dtype == DType::fp8 ? DType::bf16 : dtype; }
  [[nodiscard]] Flops flops() const {
    Flops sum;
    for (const auto& p : products) sum += p.flops();
    for (const auto& a : attention) sum += a.flops;
    return sum;
  }
  [[nodiscard]] bool empty() const { return products.empty() && attention.empty() && memory == Bytes{} && kernels == 0; }
  Work& operator+=(const Work& other) {
    if (products.empty() && attention.empty()) dtype = other.dtype;
    if (kernels == 0) compiled = other.compiled;
    products.insert(products.end(), other.products.begin(), other.products.end());
    attention.insert(attention.end(), other.attention.begin(), other.attention.end());
    memory += other.memory;
    kernels += other.kernels;
    return *this;
  }
};

}  // namespace shardsim
