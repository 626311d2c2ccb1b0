// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/training/kernels.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>

namespace shardsim::execute {
namespace {

using Rows = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<Rows, 0, Eigen::OuterStride<>>;
using ConstView = Eigen::Map<const Rows, 0, Eigen::OuterStride<>>;

ConstView view(const Matrix& m) { return {m.values.data(), m.rows, m.columns, Eigen::OuterStride<>(m.columns)}; }
View view(Matrix& m) { return {m.values.data(), m.rows, m.columns, Eigen::OuterStride<>(m.columns)}; }
ConstView view(Weights w, std::int64_t rows) {
  return {w.data(), rows, static_cast<std::int64_t>(w.size()) / rows, Eigen::OuterStride<>(static_cast<std::int64_t>(w.size()) / rows)};
}

/// Columns [head * dim, (head + 1) * dim).
ConstView head_of(const Matrix& m, std::int64_t head, std::int64_t dim) {
  return {m.values.data() + head * dim, m.rows, dim, Eigen::OuterStride<>(m.columns)};
}
View head_of(Matrix& m, std::int64_t head, std::int64_t dim) {
  return {m.values.data() + head * dim, m.rows, dim, Eigen::OuterStride<>(m.columns)};
}
/// Rows [head * s, (head + 1) * s) of a (heads * s, s) map.
ConstView map_of(const Matrix& m, std::int64_t head) {
  return {m.values.data() + head * m.columns * m.columns, m.columns, m.columns, Eigen::OuterStride<>(m.columns)};
}
View map_of(Matrix& m, std::int64_t head) {
  return {m.values.data() + head * m.columns * m.columns, m.columns, m.columns, Eigen::OuterStride<>(m.columns)};
}

template <class F>
Matrix element_wise(const Matrix& a, const Matrix& b, F&& f) {
  Matrix y(a.rows, a.columns);
  std::transform(a.values.begin(), a.values.end(), b.values.begin(), y.values.begin(), f);
  return y;
}

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

float scale_of(std::int64_t head_dim) { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }

}  // namespace

Matrix linear(const Matrix& x, Weights weight, Weights bias, std::int64_t out) {
  Matrix y(x.rows, out);
  view(y).noalias() = view(x) * view(weight, out).transpose();
  if (!bias.empty()) view(y).rowwise() += Eigen::Map<const Eigen::RowVectorXf>(bias.data(), out);
  return y;
}

Matrix linear_backward_input(const Matrix& dy, Weights weight, std::int64_t in) {
  Matrix dx(dy.rows, in);
  view(dx).noalias() = view(dy) * view(weight, dy.columns);
  return dx;
}

void linear_backward_weight(const Matrix& x, const Matrix& dy, Sums weight, Sums bias) {
  if (!weight.empty())
    View(weight.data(), dy.columns, x.columns, Eigen::OuterStride<>(x.columns)).noalias() += view(dy).transpose() * view(x);
  if (!bias.empty()) Eigen::Map<Eigen::RowVectorXf>(bias.data(), dy.columns) += view(dy).colwise().sum();
}

Matrix inverse_rms(const Matrix& x, std::int64_t size) {
  Matrix inverse(x.rows, x.columns / size);
  for (std::int64_t r = 0; r < inverse.rows; ++r)
    for (std::int64_t g = 0; g < inverse.columns; ++g) {
      float squares = 0;
      for (float v : x.row(r).subspan(static_cast<std::size_t>(g * size), static_cast<std::size_t>(size))) squares += v * v;
      inverse.row(r)[static_cast<std::size_t>(g)] = 1.0F / std::sqrt(squares / static_cast<float>(size) + norm_epsilon);
    }
  return inverse;
}

Matrix normalise(const Matrix& x, const Matrix& inverse, std::int64_t size) {
  Matrix y(x.rows, x.columns);
  for (std::int64_t i = 0; i < x.rows * x.columns; ++i)
    y.values[static_cast<std::size_t>(i)] = x.values[static_cast<std::size_t>(i)] * inverse.values[static_cast<std::size_t>(i / size)];
  return y;
}

Matrix scale_columns(const Matrix& x, Weights weight) {
  Matrix y(x.rows, x.columns);
  for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] = x.values[i] * weight[i % weight.size()];
  return y;
}

// y_i = w_i x_i r with r = (mean x^2 + eps)^-1/2, so dx_i = r (w_i dy_i - x_i r^2 mean_j(w_j dy_j x_j)).
Matrix rms_norm_backward(const Matrix& x, const Matrix& inverse, const Matrix& dy, Weights weight, Sums weight_gradient) {
  Matrix dx(x.rows, x.columns);
  const std::size_t size = weight.size();
  for (std::size_t g = 0; g < inverse.values.size(); ++g) {
    const float r = inverse.values[g];
    const std::size_t begin = g * size;
    float dot = 0;
    for (std::size_t i = 0; i < size; ++i) dot += weight[i] * dy.values[begin + i] * x.values[begin + i];
    const float along = dot / static_cast<float>(size) * r * r;
    for (std::size_t i = 0; i < size; ++i) {
      dx.values[begin + i] = r * (weight[i] * dy.values[begin + i] - x.values[begin + i] * along);
      if (!weight_gradient.empty()) weight_gradient[i] += dy.values[begin + i] * x.values[begin + i] * r;
    }
  }
  return dx;
}

Matrix rotate(const Matrix& x, std::int64_t head_dim, float sign) {
  Matrix y(x.rows, x.columns);
  const std::int64_t half = head_dim / 2;
  for (std::int64_t t = 0; t < x.rows; ++t)
    for (std::int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(t) * std::pow(rotary_base, -2.0F * static_cast<float>(i) / static_cast<float>(head_dim));
      const float c = std::cos(angle), s = sign * std::sin(angle);
      for (std::int64_t head = 0; head < x.columns; head += head_dim) {
        const auto a = static_cast<std::size_t>(head + i), b = static_cast<std::size_t>(head + i + half);
        y.row(t)[a] = x.row(t)[a] * c - x.row(t)[b] * s;
        y.row(t)[b] = x.row(t)[b] * c + x.row(t)[a] * s;
      }
    }
  return y;
}

Matrix repeat_heads(const Matrix& x, std::int64_t head_dim, std::int64_t times) {
  Matrix y(x.rows, x.columns * times);
  for (std::int64_t h = 0; h < y.columns / head_dim; ++h) head_of(y, h, head_dim) = head_of(x, h / times, head_dim);
  return y;
}

Matrix sum_heads(const Matrix& x, std::int64_t head_dim, std::int64_t times) {
  Matrix y(x.rows, x.columns / times);
  for (std::int64_t h = 0; h < x.columns / head_dim; ++h) head_of(y, h / times, head_dim) += head_of(x, h, head_dim);
  return y;
}

Matrix attention_scores(const Matrix& q, const Matrix& k, const Heads& heads) {
  Matrix scores(heads.heads * q.rows, q.rows);
  for (std::int64_t h = 0; h < heads.heads; ++h)
    map_of(scores, h).noalias() = head_of(q, h, heads.head_dim) * head_of(k, h * heads.kv_heads / heads.heads, heads.head_dim).transpose();
  return scores;
}

Matrix causal_softmax(const Matrix& scores, std::int64_t head_dim) {
  Matrix p(scores.rows, scores.columns);
  const float scale = scale_of(head_dim);
  for (std::int64_t r = 0; r < scores.rows; ++r) {
    const auto seen = static_cast<std::size_t>(r % scores.columns + 1);
    const auto from = scores.row(r).first(seen);
    const auto to = p.row(r).first(seen);
    const float top = *std::max_element(from.begin(), from.end());
    float total = 0;
    for (std::size_t i = 0; i < seen; ++i) total += to[i] = std::exp(scale * (from[i] - top));
    for (float& v : to) v /= total;
  }
  return p;
}

Matrix causal_softmax_backward(const Matrix& p, const Matrix& dp, std::int64_t head_dim) {
  Matrix ds(p.rows, p.columns);
  const float scale = scale_of(head_dim);
  for (std::int64_t r = 0; r < p.rows; ++r) {
    float dot = 0;
    for (std::size_t i = 0; i < p.row(r).size(); ++i) dot += p.row(r)[i] * dp.row(r)[i];
    for (std::size_t i = 0; i < p.row(r).size(); ++i) ds.row(r)[i] = scale * p.row(r)[i] * (dp.row(r)[i] - dot);
  }
  return ds;
}

Matrix attention_context(const Matrix& p, const Matrix& v, const Heads& heads) {
  Matrix context(v.rows, heads.heads * heads.value_dim);
  for (std::int64_t h = 0; h < heads.heads; ++h)
    head_of(context, h, heads.value_dim).noalias() = map_of(p, h) * head_of(v, h * heads.kv_heads / heads.heads, heads.value_dim);
  return context;
}

AttentionGradients attention_scores_backward(const Matrix& q, const Matrix& k, const Matrix& dscores, const Heads& heads) {
  AttentionGradients d{Matrix(q.rows, q.columns), Matrix(k.rows, k.columns), {}};
  for (std::int64_t h = 0; h < heads.heads; ++h) {
    const std::int64_t kv = h * heads.kv_heads / heads.heads;
    head_of(d.q, h, heads.head_dim).noalias() = map_of(dscores, h) * head_of(k, kv, heads.head_dim);
    head_of(d.k, kv, heads.head_dim).noalias() += map_of(dscores, h).transpose() * head_of(q, h, heads.head_dim);
  }
  return d;
}

ContextGradients attention_context_backward(const Matrix& p, const Matrix& v, const Matrix& dcontext, const Heads& heads) {
  ContextGradients d{Matrix(p.rows, p.columns), Matrix(v.rows, v.columns)};
  for (std::int64_t h = 0; h < heads.heads; ++h) {
    const std::int64_t kv = h * heads.kv_heads / heads.heads;
    map_of(d.probabilities, h).noalias() = head_of(dcontext, h, heads.value_dim) * head_of(v, kv, heads.value_dim).transpose();
    head_of(d.v, kv, heads.value_dim).noalias() += map_of(p, h).transpose() * head_of(dcontext, h, heads.value_dim);
  }
  return d;
}

Attended attend(const Matrix& q, const Matrix& k, const Matrix& v, const Heads& heads) {
  const Matrix scores = attention_scores(q, k, heads);
  Attended out{{}, Matrix(q.rows, heads.heads)};
  const float scale = scale_of(heads.head_dim);
  for (std::int64_t r = 0; r < scores.rows; ++r) {
    const auto seen = scores.row(r).first(static_cast<std::size_t>(r % q.rows + 1));
    const float top = *std::max_element(seen.begin(), seen.end());
    float total = 0;
    for (float s : seen) total += std::exp(scale * (s - top));
    out.log_sum_exp.row(r % q.rows)[static_cast<std::size_t>(r / q.rows)] = scale * top + std::log(total);
  }
  out.context = attention_context(causal_softmax(scores, heads.head_dim), v, heads);
  return out;
}

AttentionGradients attend_backward(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& log_sum_exp, const Matrix& dcontext,
                                   const Heads& heads) {
  Matrix p = attention_scores(q, k, heads);
  const float scale = scale_of(heads.head_dim);
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const float lse = log_sum_exp.row(r % q.rows)[static_cast<std::size_t>(r / q.rows)];
    for (std::int64_t c = 0; c < p.columns; ++c) {
      float& value = p.row(r)[static_cast<std::size_t>(c)];
      value = c <= r % q.rows ? std::exp(scale * value - lse) : 0.0F;
    }
  }
  ContextGradients outer = attention_context_backward(p, v, dcontext, heads);
  AttentionGradients d = attention_scores_backward(q, k, causal_softmax_backward(p, outer.probabilities, heads.head_dim), heads);
  d.v = std::move(outer.v);
  return d;
}

Matrix silu(const Matrix& x) {
  return element_wise(x, x, [](float a, float) { return a * sigmoid(a); });
}
Matrix silu_backward(const Matrix& x, const Matrix& dy) {
  return element_wise(x, dy, [](float a, float d) {
    const float s = sigmoid(a);
    return d * s * (1.0F + a * (1.0F - s));
  });
}
Matrix multiply(const Matrix& a, const Matrix& b) {
  return element_wise(a, b, [](float x, float y) { return x * y; });
}
Matrix sum(const Matrix& a, const Matrix& b) {
  return element_wise(a, b, [](float x, float y) { return x + y; });
}

Matrix log_softmax(const Matrix& logits) {
  Matrix y(logits.rows, logits.columns);
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    const auto from = logits.row(r);
    const float top = *std::max_element(from.begin(), from.end());
    float total = 0;
    for (float v : from) total += std::exp(v - top);
    const float lse = top + std::log(total);
    std::transform(from.begin(), from.end(), y.row(r).begin(), [lse](float v) { return v - lse; });
  }
  return y;
}

Matrix log_softmax_backward(const Matrix& logarithms, const Matrix& d) {
  Matrix dx(d.rows, d.columns);
  for (std::int64_t r = 0; r < d.rows; ++r) {
    float total = 0;
    for (float v : d.row(r)) total += v;
    for (std::size_t i = 0; i < d.row(r).size(); ++i) dx.row(r)[i] = d.row(r)[i] - std::exp(logarithms.row(r)[i]) * total;
  }
  return dx;
}

}  // namespace shardsim::execute
