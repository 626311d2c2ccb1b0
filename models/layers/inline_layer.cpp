// SPDX-License-Identifier: Apache-2.0
// Layers that a user lists by hand: a chain, each item reading what the one before made.
#include <numeric>

#include "models/layers/layers.hpp"
#include "models/layers/ops.hpp"

namespace shardsim {
namespace {

/// What an item reads: the tensor before it, or a reshaped (pooled, cropped) one where its size does not fit. -1: nothing before.
TensorIndex fitted(LayerBuilder& b, const InlineModule& m, TensorIndex x, std::int64_t elements) {
  if (x >= 0 && (elements == 0 || b.elements(x) == elements)) return x;
  if (x < 0) return b.input("input", elements, b.batch().compute);
  b.begin(m.name + ".reshape");
  b.read(x);
  const std::int64_t bytes = (b.elements(x) + elements) * size_of(b.batch().compute);
  b.forward({1, bytes});
  b.backward_input({1, bytes});
  return b.make("reshaped", elements, b.batch().compute);
}

/// Anything with a shape: matrices multiply one row a token, the rest is only there.
TensorIndex shapes(LayerBuilder& b, const InlineModule& m, TensorIndex x) {
  b.begin(m.name);
  for (const auto& [name, shape] : m.shapes) b.declare(name, shape);
  if (x >= 0) {
    b.read(x);
    if (b.trains()) b.keep(x);
  }
  std::int64_t out = 0;
  for (const auto& [name, shape] : m.shapes) {
    if (shape.size() < 2 || !m.multiplies) continue;
    const std::int64_t columns = std::accumulate(shape.begin() + 1, shape.end(), std::int64_t{1}, std::multiplies<>());
    b.product({b.tokens(), shape.front(), columns, 1}, Factor::weight);
    out = shape.front();
  }
  if (out == 0) return x;
  return b.make("output", b.tokens() * out, b.batch().compute);
}

/// Attention as a Llama block has it, under the item's name.
TensorIndex self_attention(LayerBuilder& b, const InlineModule& m, TensorIndex x) {
  const std::string stem = m.name.empty() ? m.name : m.name + '.', q = stem + "q_proj", k = stem + "k_proj", v = stem + "v_proj",
                    out = stem + "o_proj";
  BlockSpec block;
  block.hidden = m.in;
  AttentionSpec& a = block.attention;
  a.heads = m.heads, a.kv_heads = m.kv_heads, a.head_dim = a.value_dim = m.head_dim;
  a.qkv_bias = a.out_bias = m.bias;
  a.causal = m.causal, a.window = m.window;
  BlockNames& n = block.names;
  n.attention = m.name, n.q = q, n.k = k, n.v = v, n.out = out;
  return attention(b, block, x);
}

TensorIndex item(LayerBuilder& b, const InlineModule& m, TensorIndex x) {
  using Kind = InlineModule::Kind;
  switch (m.kind) {
    case Kind::linear:
      return linear(b, m.name, fitted(b, m, x, b.tokens() * m.in), {.in = m.in, .out = m.out, .bias = m.bias, .tied_to = m.tied_to});
    case Kind::conv2d: {
      // The input's height and width are not stated; the tensor before is read as it is, the first one has the output's.
      if (x < 0) x = b.input("input", b.tokens() * m.in * m.output_height * m.output_width, b.batch().compute);
      return conv2d(b, m.name, x,
                    {.in = m.in,
                     .out = m.out,
                     .kernel_height = m.kernel_height,
                     .kernel_width = m.kernel_width,
                     .groups = m.groups,
                     .output_height = m.output_height,
                     .output_width = m.output_width,
                     .bias = m.bias});
    }
    case Kind::norm:
      if (x < 0) x = b.input("input", b.tokens() * m.out, b.batch().compute);
      return norm(b, m.name, x, m.bias ? NormKind::layer : NormKind::layer_without_bias, m.out);
    case Kind::embedding:
      return lookup(b, m.name, m.in, m.out);
    case Kind::activation:
      return x < 0 ? x : activation(b, m.name, x, Activation::relu);
    case Kind::attention:
      return self_attention(b, m, fitted(b, m, x, b.tokens() * m.in));
    case Kind::shapes:
      return shapes(b, m, x);
  }
  return x;
}

}  // namespace

TensorIndex emit(LayerBuilder& b, const InlineSpec& layers) {
  TensorIndex x = layers.input > 0 ? b.input("layer input", b.tokens() * layers.input, b.batch().compute) : -1;
  for (const InlineModule& m : layers.modules) x = item(b, m, x);
  return x;
}

}  // namespace shardsim
