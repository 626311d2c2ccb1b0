// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a small transformer, in fp32: forward and backward of each operation on one sequence. No memory of its own, no dtypes:
// callers round what they store. All on the host: HostMath hands them to the trainer.
#pragma once

#include <cstdint>
#include <span>

#include "calibrate/execute/training/math.hpp"

namespace shardsim::execute {

using Weights = std::span<const float>;  ///< (out, in), row-major
using Sums = std::span<float>;           ///< gradients of weights are added to

/// y = x W^T + b; `bias` may be empty.
[[nodiscard]] Matrix linear(const Matrix& x, Weights weight, Weights bias, std::int64_t out);
/// dx = dy W.
[[nodiscard]] Matrix linear_backward_input(const Matrix& dy, Weights weight, std::int64_t in);
/// dW += dy^T x, db += column sums of dy; empty spans are left out.
void linear_backward_weight(const Matrix& x, const Matrix& dy, Sums weight, Sums bias);

/// Root mean square of groups of `size` elements of each row: inverse, one a group.
[[nodiscard]] Matrix inverse_rms(const Matrix& x, std::int64_t size);
/// x times the inverse of its group.
[[nodiscard]] Matrix normalise(const Matrix& x, const Matrix& inverse, std::int64_t size);
/// Times the weight of `size` elements.
[[nodiscard]] Matrix scale_columns(const Matrix& x, Weights weight);
/// dx of weight * x * inverse; adds dy * normalised to `weight_gradient` (may be empty).
[[nodiscard]] Matrix rms_norm_backward(const Matrix& x, const Matrix& inverse, const Matrix& dy, Weights weight, Sums weight_gradient);

/// Rotary embedding (arXiv 2104.09864, half-split as in transformers) of heads of `head_dim`; `sign` -1 rotates back.
[[nodiscard]] Matrix rotate(const Matrix& x, std::int64_t head_dim, float sign);

/// Heads of `head_dim` repeated `times`, each next to its copy; and the sum over the copies.
[[nodiscard]] Matrix repeat_heads(const Matrix& x, std::int64_t head_dim, std::int64_t times);
[[nodiscard]] Matrix sum_heads(const Matrix& x, std::int64_t head_dim, std::int64_t times);

/// Causal softmax(q k^T / sqrt(d)) v, and the log-sum-exp of each (token, head).
[[nodiscard]] Attended attend(const Matrix& q, const Matrix& k, const Matrix& v, const Heads& heads);
[[nodiscard]] AttentionGradients attend_backward(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& log_sum_exp,
                                                 const Matrix& dcontext, const Heads& heads);

/// The same in pieces, as eager code has it: (heads * s, s) scores without scale and mask; their causal softmax; context.
[[nodiscard]] Matrix attention_scores(const Matrix& q, const Matrix& k, const Heads& heads);
[[nodiscard]] Matrix causal_softmax(const Matrix& scores, std::int64_t head_dim);
[[nodiscard]] Matrix causal_softmax_backward(const Matrix& probabilities, const Matrix& dprobabilities, std::int64_t head_dim);
[[nodiscard]] Matrix attention_context(const Matrix& probabilities, const Matrix& v, const Heads& heads);
/// Gradients of scores' factors, and of context's.
[[nodiscard]] AttentionGradients attention_scores_backward(const Matrix& q, const Matrix& k, const Matrix& dscores, const Heads& heads);
[[nodiscard]] ContextGradients attention_context_backward(const Matrix& probabilities, const Matrix& v, const Matrix& dcontext,
                                                          const Heads& heads);

[[nodiscard]] Matrix silu(const Matrix& x);
[[nodiscard]] Matrix silu_backward(const Matrix& x, const Matrix& dy);
[[nodiscard]] Matrix multiply(const Matrix& a, const Matrix& b);
[[nodiscard]] Matrix sum(const Matrix& a, const Matrix& b);

[[nodiscard]] Matrix log_softmax(const Matrix& logits);
/// dlogits from the log-probabilities and their gradient.
[[nodiscard]] Matrix log_softmax_backward(const Matrix& logarithms, const Matrix& dlogarithms);

}  // namespace shardsim::execute
