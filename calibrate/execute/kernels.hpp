// SPDX-License-Identifier: Apache-2.0
// The arithmetic of a small transformer, in fp32: forward and backward of each operation on one sequence. No memory of its own, no dtypes:
// callers round what they store. Matrices are row-major; a row is a token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace shardsim::execute {

struct Matrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c) : rows(r), columns(c), values(static_cast<std::size_t>(r * c)) {}
  Matrix(std::int64_t r, std::int64_t c, std::vector<float> v) : rows(r), columns(c), values(std::move(v)) {}
  [[nodiscard]] std::span<float> row(std::int64_t r) { return std::span(values).subspan(static_cast<std::size_t>(r * columns), static_cast<std::size_t>(columns)); }
  [[nodiscard]] std::span<const float> row(std::int64_t r) const {
    return std::span(values).subspan(static_cast<std::size_t>(r * columns), static_cast<std::size_t>(columns));
  }
};

using Weights = std::span<const float>;  ///< (out, in), row-major
using Sums = std::span<float>;           ///< gradients of weights are added to

/// c = a b, or c += a b. Row-major, without gaps; a is (rows, inner) and b (inner, columns), or stored the other way round if transposed.
struct Product {
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  std::int64_t rows = 0, columns = 0, inner = 0;
  bool transpose_a = false, transpose_b = false, accumulate = false;
};
using Products = std::function<void(const Product&)>;
void product_on_host(const Product& product);

/// y = x W^T + b; `bias` may be empty.
[[nodiscard]] Matrix linear(const Products& products, const Matrix& x, Weights weight, Weights bias, std::int64_t out);
/// dx = dy W.
[[nodiscard]] Matrix linear_backward_input(const Products& products, const Matrix& dy, Weights weight, std::int64_t in);
/// dW += dy^T x, db += column sums of dy; empty spans are left out.
void linear_backward_weight(const Products& products, const Matrix& x, const Matrix& dy, Sums weight, Sums bias);

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

/// Shape of attention: `heads` of queries over `kv_heads` of keys and values.
struct Heads {
  std::int64_t heads = 1, kv_heads = 1, head_dim = 1, value_dim = 1;
};
/// Causal softmax(q k^T / sqrt(d)) v, and the log-sum-exp of each (token, head).
struct Attended {
  Matrix context, log_sum_exp;
};
[[nodiscard]] Attended attend(const Matrix& q, const Matrix& k, const Matrix& v, const Heads& heads);
struct AttentionGradients {
  Matrix q, k, v;
};
[[nodiscard]] AttentionGradients attend_backward(const Matrix& q, const Matrix& k, const Matrix& v, const Attended& forward, const Matrix& dcontext,
                                                 const Heads& heads);

/// The same in pieces, as eager code has it: (heads * s, s) scores without scale and mask; their causal softmax; context.
[[nodiscard]] Matrix attention_scores(const Matrix& q, const Matrix& k, const Heads& heads);
[[nodiscard]] Matrix causal_softmax(const Matrix& scores, std::int64_t head_dim);
[[nodiscard]] Matrix causal_softmax_backward(const Matrix& probabilities, const Matrix& dprobabilities, std::int64_t head_dim);
[[nodiscard]] Matrix attention_context(const Matrix& probabilities, const Matrix& v, const Heads& heads);
/// Gradients of scores' factors, and of context's.
[[nodiscard]] AttentionGradients attention_scores_backward(const Matrix& q, const Matrix& k, const Matrix& dscores, const Heads& heads);
struct ContextGradients {
  Matrix probabilities, v;
};
[[nodiscard]] ContextGradients attention_context_backward(const Matrix& probabilities, const Matrix& v, const Matrix& dcontext, const Heads& heads);

[[nodiscard]] Matrix silu(const Matrix& x);
[[nodiscard]] Matrix silu_backward(const Matrix& x, const Matrix& dy);
[[nodiscard]] Matrix multiply(const Matrix& a, const Matrix& b);
[[nodiscard]] Matrix sum(const Matrix& a, const Matrix& b);

[[nodiscard]] Matrix log_softmax(const Matrix& logits);
/// dlogits from the log-probabilities and their gradient.
[[nodiscard]] Matrix log_softmax_backward(const Matrix& logarithms, const Matrix& dlogarithms);

}  // namespace shardsim::execute
