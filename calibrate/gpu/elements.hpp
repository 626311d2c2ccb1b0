// SPDX-License-Identifier: Apache-2.0
// What one thread of each kernel computes, as functions of its index: no thread reads what another of the same kernel writes, so that no
// kernel synchronises. Compiled by nvcc for the device and by the host's compiler for the tests, which hold them against kernels.cpp.
// Rows are tokens; matrices are row-major; `columns` is their width.
#pragma once

#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define SHARDSIM_DEVICE __host__ __device__
#else
#define SHARDSIM_DEVICE
#endif

namespace shardsim::gpu {

using Index = std::int64_t;

union FloatBits {
  float value;
  std::uint32_t bits;
};

SHARDSIM_DEVICE inline float float_from_bf16(std::uint16_t stored) {
  FloatBits word;
  word.bits = static_cast<std::uint32_t>(stored) << 16;
  return word.value;
}

/// Round to nearest, ties to even; a NaN stays one (see element.hpp).
SHARDSIM_DEVICE inline std::uint16_t bf16_from_float(float value) {
  FloatBits word;
  word.value = value;
  if (value != value) return static_cast<std::uint16_t>((word.bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((word.bits + 0x7fffu + ((word.bits >> 16) & 1u)) >> 16);
}

// Elements: index i is an element ------------------------------------------------------------------------------------------------

struct DecodeBf16 {
  const std::uint16_t* stored;
  float* values;
  SHARDSIM_DEVICE void operator()(Index i) const { values[i] = float_from_bf16(stored[i]); }
};

struct EncodeBf16 {
  const float* values;
  std::uint16_t* stored;
  SHARDSIM_DEVICE void operator()(Index i) const { stored[i] = bf16_from_float(values[i]); }
};

struct RoundBf16 {
  float* values;
  SHARDSIM_DEVICE void operator()(Index i) const { values[i] = float_from_bf16(bf16_from_float(values[i])); }
};

struct Fill {
  float* values;
  float value;
  SHARDSIM_DEVICE void operator()(Index i) const { values[i] = value; }
};

struct Add {
  float* into;
  const float* values;
  SHARDSIM_DEVICE void operator()(Index i) const { into[i] += values[i]; }
};

struct Scale {
  float* values;
  float factor;
  SHARDSIM_DEVICE void operator()(Index i) const { values[i] *= factor; }
};

struct Sum {
  const float *a, *b;
  float* y;
  SHARDSIM_DEVICE void operator()(Index i) const { y[i] = a[i] + b[i]; }
};

struct Multiply {
  const float *a, *b;
  float* y;
  SHARDSIM_DEVICE void operator()(Index i) const { y[i] = a[i] * b[i]; }
};

SHARDSIM_DEVICE inline float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

struct Silu {
  const float* x;
  float* y;
  SHARDSIM_DEVICE void operator()(Index i) const { y[i] = x[i] * sigmoid(x[i]); }
};

struct SiluBackward {
  const float *x, *dy;
  float* dx;
  SHARDSIM_DEVICE void operator()(Index i) const {
    const float s = sigmoid(x[i]);
    dx[i] = dy[i] * s * (1.0F + x[i] * (1.0F - s));
  }
};

/// One optimizer step of one weight (optimizer.cpp has the formulas' sources).
struct Update {
  bool adaptive, momentum, decoupled_decay;
  float learning_rate, beta1, beta2, epsilon, weight_decay, momentum_factor, correction1, correction2;
  float* weights;
  const float* gradients;
  float *first, *second;
  SHARDSIM_DEVICE void operator()(Index i) const {
    const float g = gradients[i];
    if (!adaptive) {
      float direction = g;
      if (momentum) direction = first[i] = momentum_factor * first[i] + g;
      weights[i] -= learning_rate * direction;
      return;
    }
    if (decoupled_decay) weights[i] *= 1.0F - learning_rate * weight_decay;
    first[i] += (1.0F - beta1) * (g - first[i]);
    second[i] = beta2 * second[i] + (1.0F - beta2) * g * g;
    weights[i] -= learning_rate / correction1 * first[i] / (std::sqrt(second[i] / correction2) + epsilon);
  }
};

// Modules with parameters --------------------------------------------------------------------------------------------------------

/// Element of the looked-up rows.
struct Lookup {
  const float* table;
  const std::int32_t* tokens;
  Index width;
  float* rows;
  SHARDSIM_DEVICE void operator()(Index i) const { rows[i] = table[tokens[i / width] * width + i % width]; }
};

/// Element of the table: the rows that looked it up are added in their order, so that the sum is the same in every run.
struct LookupBackward {
  const float* dy;
  const std::int32_t* tokens;
  Index count, width;
  float* table;
  SHARDSIM_DEVICE void operator()(Index i) const {
    const Index row = i / width, column = i % width;
    float sum = table[i];
    for (Index t = 0; t < count; ++t)
      if (tokens[t] == row) sum += dy[t * width + column];
    table[i] = sum;
  }
};

struct AddBias {
  float* y;
  const float* bias;
  Index columns;
  SHARDSIM_DEVICE void operator()(Index i) const { y[i] += bias[i % columns]; }
};

/// A column.
struct ColumnSums {
  const float* dy;
  Index rows, columns;
  float* sums;
  SHARDSIM_DEVICE void operator()(Index column) const {
    float sum = 0;
    for (Index r = 0; r < rows; ++r) sum += dy[r * columns + column];
    sums[column] += sum;
  }
};

/// A group of `size` elements.
struct InverseRms {
  const float* x;
  Index size;
  float epsilon;
  float* inverse;
  SHARDSIM_DEVICE void operator()(Index group) const {
    float squares = 0;
    for (Index i = 0; i < size; ++i) squares += x[group * size + i] * x[group * size + i];
    inverse[group] = 1.0F / std::sqrt(squares / static_cast<float>(size) + epsilon);
  }
};

struct Normalise {
  const float *x, *inverse;
  Index size;
  float* y;
  SHARDSIM_DEVICE void operator()(Index i) const { y[i] = x[i] * inverse[i / size]; }
};

struct ScaleColumns {
  const float *x, *weight;
  Index size;
  float* y;
  SHARDSIM_DEVICE void operator()(Index i) const { y[i] = x[i] * weight[i % size]; }
};

/// A group: dx_i = r (w_i dy_i - x_i r^2 mean_j(w_j dy_j x_j)).
struct RmsNormBackward {
  const float *x, *inverse, *dy, *weight;
  Index size;
  float* dx;
  SHARDSIM_DEVICE void operator()(Index group) const {
    const float r = inverse[group];
    const Index begin = group * size;
    float dot = 0;
    for (Index i = 0; i < size; ++i) dot += weight[i] * dy[begin + i] * x[begin + i];
    const float along = dot / static_cast<float>(size) * r * r;
    for (Index i = 0; i < size; ++i) dx[begin + i] = r * (weight[i] * dy[begin + i] - x[begin + i] * along);
  }
};

/// An element of the weight.
struct RmsNormWeightGradient {
  const float *x, *inverse, *dy;
  Index groups, size;
  float* gradient;
  SHARDSIM_DEVICE void operator()(Index i) const {
    float sum = gradient[i];
    for (Index g = 0; g < groups; ++g) sum += dy[g * size + i] * x[g * size + i] * inverse[g];
    gradient[i] = sum;
  }
};

// Attention ----------------------------------------------------------------------------------------------------------------------

/// Element (token, head, i): the two halves of a head rotate together.
struct Rotate {
  const float* x;
  Index columns, head_dim;
  float base, sign;
  float* y;
  SHARDSIM_DEVICE void operator()(Index at) const {
    const Index half = head_dim / 2, inside = at % columns % head_dim, i = inside % half;
    const auto token = static_cast<float>(at / columns);
    const float angle = token * std::pow(base, -2.0F * static_cast<float>(i) / static_cast<float>(head_dim));
    const float c = std::cos(angle), s = sign * std::sin(angle);
    y[at] = inside < half ? x[at] * c - x[at + half] * s : x[at] * c + x[at - half] * s;
  }
};

/// Element of the repeated heads; `columns` is theirs.
struct RepeatHeads {
  const float* x;
  Index columns, head_dim, times;
  float* y;
  SHARDSIM_DEVICE void operator()(Index at) const {
    const Index row = at / columns, column = at % columns;
    y[at] = x[row * (columns / times) + column / head_dim / times * head_dim + column % head_dim];
  }
};

/// Element of the sums; `columns` is theirs.
struct SumHeads {
  const float* x;
  Index columns, head_dim, times;
  float* y;
  SHARDSIM_DEVICE void operator()(Index at) const {
    const Index row = at / columns, column = at % columns;
    const float* from = x + row * columns * times + column / head_dim * times * head_dim + column % head_dim;
    float sum = 0;
    for (Index copy = 0; copy < times; ++copy) sum += from[copy * head_dim];
    y[at] = sum;
  }
};

/// The largest of the first `seen` of a row, and the sum of exp(scale * (x - largest)).
SHARDSIM_DEVICE inline float largest_of(const float* row, Index seen) {
  float top = row[0];
  for (Index i = 1; i < seen; ++i) top = row[i] > top ? row[i] : top;
  return top;
}

/// A row of the (heads * s, s) maps: token t sees tokens 0 ... t.
struct CausalSoftmax {
  const float* scores;
  Index columns;
  float scale;
  float* p;
  SHARDSIM_DEVICE void operator()(Index row) const {
    const Index seen = row % columns + 1;
    const float* from = scores + row * columns;
    float* to = p + row * columns;
    const float top = largest_of(from, seen);
    float total = 0;
    for (Index i = 0; i < seen; ++i) total += to[i] = std::exp(scale * (from[i] - top));
    for (Index i = 0; i < columns; ++i) to[i] = i < seen ? to[i] / total : 0.0F;
  }
};

struct SoftmaxBackward {
  const float *p, *dp;
  Index columns;
  float scale;
  float* ds;
  SHARDSIM_DEVICE void operator()(Index row) const {
    const Index begin = row * columns;
    float dot = 0;
    for (Index i = 0; i < columns; ++i) dot += p[begin + i] * dp[begin + i];
    for (Index i = 0; i < columns; ++i) ds[begin + i] = scale * p[begin + i] * (dp[begin + i] - dot);
  }
};

/// A row of the maps; the result is (s, heads).
struct LogSumExp {
  const float* scores;
  Index tokens, heads;
  float scale;
  float* log_sum_exp;
  SHARDSIM_DEVICE void operator()(Index row) const {
    const Index token = row % tokens, head = row / tokens;
    const float* from = scores + row * tokens;
    const float top = largest_of(from, token + 1);
    float total = 0;
    for (Index i = 0; i <= token; ++i) total += std::exp(scale * (from[i] - top));
    log_sum_exp[token * heads + head] = scale * top + std::log(total);
  }
};

/// Element of the maps: scores become probabilities.
struct Probabilities {
  float* scores;
  const float* log_sum_exp;
  Index tokens, heads;
  float scale;
  SHARDSIM_DEVICE void operator()(Index at) const {
    const Index row = at / tokens, column = at % tokens, token = row % tokens;
    scores[at] = column <= token ? std::exp(scale * scores[at] - log_sum_exp[token * heads + row / tokens]) : 0.0F;
  }
};

// The loss -----------------------------------------------------------------------------------------------------------------------

/// A row.
struct LogSoftmax {
  const float* logits;
  Index columns;
  float* y;
  SHARDSIM_DEVICE void operator()(Index row) const {
    const float* from = logits + row * columns;
    const float top = largest_of(from, columns);
    float total = 0;
    for (Index i = 0; i < columns; ++i) total += std::exp(from[i] - top);
    const float all = top + std::log(total);
    for (Index i = 0; i < columns; ++i) y[row * columns + i] = from[i] - all;
  }
};

struct LogSoftmaxBackward {
  const float *logarithms, *d;
  Index columns;
  float* dx;
  SHARDSIM_DEVICE void operator()(Index row) const {
    const Index begin = row * columns;
    float total = 0;
    for (Index i = 0; i < columns; ++i) total += d[begin + i];
    for (Index i = 0; i < columns; ++i) dx[begin + i] = d[begin + i] - std::exp(logarithms[begin + i]) * total;
  }
};

/// A row.
struct PickTargets {
  const float* x;
  const std::int32_t* targets;
  Index columns;
  float* picked;
  SHARDSIM_DEVICE void operator()(Index row) const { picked[row] = x[row * columns + targets[row]]; }
};

struct AtTargets {
  const std::int32_t* targets;
  Index columns;
  float value;
  float* d;
  SHARDSIM_DEVICE void operator()(Index at) const { d[at] = at % columns == targets[at / columns] ? value : 0.0F; }
};

}  // namespace shardsim::gpu
