// SPDX-License-Identifier: Apache-2.0
// Kernels on one core.
#pragma once

#include <functional>

#include "calibrate/fit/gemm_fit.hpp"

namespace shardsim {

/// Bytes read and written per second by copies of buffers that no cache holds; the best of those that fit into `budget`.
[[nodiscard]] ByteRate local_memory_bandwidth(Seconds budget);

/// fp32 products, smallest first, on random numbers (zeros run faster than data); the best time of each shape, within `budget`.
/// Shapes that are `known` are taken from there; `measured` hears of the others.
[[nodiscard]] GemmPoints local_products(
    Seconds budget, const GemmPoints& known = {}, const std::function<void(const GemmModel::Point&)>& measured = [](const auto&) {});

}  // namespace shardsim
