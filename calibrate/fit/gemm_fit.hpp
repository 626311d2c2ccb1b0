// SPDX-License-Identifier: Apache-2.0
// Fits of measured matrix products.
#pragma once

#include <vector>

#include "sim/machine/profile.hpp"

namespace shardsim {

using GemmPoints = std::vector<GemmModel::Point>;

/// Launch, efficiencies and the tile (none, or the one whose waves explain the points best) that minimise the Huber loss of
/// log(roofline / measured), for products of `dtype` on `gpu`. The table stays empty.
[[nodiscard]] GemmModel fit_gemm(const Gpu& gpu, const GemmPoints& points, DType dtype = DType::bf16);

/// At most `count` of the points, spread over the space of shapes: the first, then always the one farthest from all taken so far.
[[nodiscard]] GemmPoints spread_out(const GemmPoints& points, std::size_t count);

}  // namespace shardsim
