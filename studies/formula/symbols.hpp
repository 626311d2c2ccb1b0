// SPDX-License-Identifier: Apache-2.0
// The named quantities that formulas of `expect` may use.
#pragma once

#include "strategies/strategy.hpp"
#include "studies/check/expression.hpp"

namespace shardsim {

/// psi, psi_trainable: elements of all and of the trainable parameters. root: elements outside of the repeated blocks (the root unit);
/// block: elements of the largest block. layers: number of blocks. n, s, r: ranks, ranks of a shard group, replicas. g: micro-batches.
/// e_p, e_g, e_r: bytes of an element of a parameter, a gradient, a reduction. k: optimizer bytes per trainable parameter, with the
/// master copy.
[[nodiscard]] Symbols symbols_of(const Job& job);

}  // namespace shardsim
