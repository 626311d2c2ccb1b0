// SPDX-License-Identifier: Apache-2.0
// Attention: projections, rotary embedding, and scores, softmax and context as one flash kernel or as plain products.
#include <algorithm>
#include <utility>

#include "models/layers/layers.hpp"
#include "models/layers/ops.hpp"

namespace shardsim {

double attention_density(bool causal, std::int64_t window, std::int64_t sequence) {
  if (!causal) return 1;
  const auto s = static_cast<double>(sequence);
  if (window <= 0 || window >= sequence) return (s + 1) / (2 * s);
  const auto w = static_cast<double>(window);
  return (w * s - w * (w - 1) / 2) / (s * s);
}

namespace {

struct Qkv {
  TensorIndex q, k, v;
};

std::string named(std::string_view prefix, std::string_view suffix) {
  std::string name(prefix);
  if (!name.empty()) name += '.';
  name += suffix;
  return name;
}

TensorIndex head_norm(LayerBuilder& b, std::string_view name, TensorIndex x, const AttentionSpec& a, std::int64_t heads) {
  if (a.qk_norm == NormKind::none) return x;
  return norm(b, std::string(name), x, a.qk_norm, a.qk_norm_over_all_heads ? heads * a.head_dim : a.head_dim);
}

Qkv project(LayerBuilder& b, const BlockSpec& block, TensorIndex x) {
  const AttentionSpec& a = block.attention;
  const BlockNames& names = block.names;
  const std::int64_t q_width = a.heads * a.head_dim, k_width = a.kv_heads * a.head_dim, v_width = a.kv_heads * a.value_dim;
  if (a.projection == AttentionSpec::Projection::fused) {
    const TensorIndex qkv =
        linear(b, std::string(names.qkv), x,
               {.in = block.hidden, .out = q_width + k_width + v_width, .bias = a.qkv_bias, .transposed = a.transposed});
    return {qkv, qkv, qkv};
  }
  Qkv heads{};
  heads.q = linear(b, std::string(names.q), x, {.in = block.hidden, .out = a.output_gate ? 2 * q_width : q_width, .bias = a.qkv_bias});
  heads.q = head_norm(b, names.q_norm, heads.q, a, a.heads);
  if (!a.own_keys) {
    heads.k = heads.v = heads.q;
    return heads;
  }
  heads.k = linear(b, std::string(names.k), x, {.in = block.hidden, .out = k_width, .bias = a.qkv_bias && a.k_bias});
  heads.k = head_norm(b, names.k_norm, heads.k, a, a.kv_heads);
  heads.v = linear(b, std::string(names.v), x, {.in = block.hidden, .out = v_width, .bias = a.qkv_bias});
  return heads;
}

/// x cos + rotate(x) sin on queries and keys: five kernels each. Keeps nothing: cos and sin need no gradient.
Qkv rotate(LayerBuilder& b, const BlockSpec& block, Qkv in) {
  const AttentionSpec& a = block.attention;
  const std::int64_t q = b.tokens() * a.heads * a.head_dim, k = b.tokens() * a.kv_heads * a.head_dim;
  const DType dtype = b.batch().compute;
  const std::int64_t c = size_of(dtype);
  b.begin(named(block.names.attention, "rotary"));
  b.read(in.q);
  if (in.k != in.q) b.read(in.k);
  const Kernels kernels = b.batch().fuses_rotary() ? Kernels{1, 2 * (q + k) * c} : Kernels{10, 10 * (q + k) * c};
  b.forward(kernels);
  b.backward_input(kernels);
  if (!b.batch().fuses_rotary()) b.module().forward_temporary = b.module().backward_temporary = Bytes{3 * std::max(q, k) * c};
  return {b.make("rotated queries", q, dtype), b.make("rotated keys", k, dtype), in.v};
}

/// DeepSeek's latent attention (arXiv 2405.04434, section 2.1): queries from a low-rank projection; keys and values from a shared one,
/// the rotary part of the key beside it. The value stays a view into the projection's output.
Qkv project_latent(LayerBuilder& b, const BlockSpec& block, TensorIndex x) {
  const AttentionSpec& a = block.attention;
  const std::string self(block.names.attention);
  const std::int64_t q_width = a.heads * a.head_dim, nope = a.head_dim - a.rope_dim;
  TensorIndex q = x;
  if (a.query_rank > 0) {
    q = linear(b, self + ".q_a_proj", x, {.in = block.hidden, .out = a.query_rank, .bias = a.latent_bias});
    q = norm(b, self + ".q_a_layernorm", q, NormKind::rms, a.query_rank);
    q = linear(b, self + ".q_b_proj", q, {.in = a.query_rank, .out = q_width});
  } else {
    q = linear(b, self + ".q_proj", x, {.in = block.hidden, .out = q_width});
  }
  const TensorIndex low =
      linear(b, self + ".kv_a_proj_with_mqa", x, {.in = block.hidden, .out = a.kv_rank + a.rope_dim, .bias = a.latent_bias});
  const TensorIndex normed = norm(b, self + ".kv_a_layernorm", low, NormKind::rms, a.kv_rank, b.tokens() * a.kv_rank);
  const TensorIndex kv = linear(b, self + ".kv_b_proj", normed, {.in = a.kv_rank, .out = a.heads * (nope + a.value_dim)});

  const std::int64_t n = b.tokens() * q_width;
  const std::int64_t c = size_of(b.batch().compute);
  b.begin(self + ".rotary");
  b.read(q);
  b.read(kv);
  b.read(low);
  const Kernels kernels = b.batch().fuses_rotary() ? Kernels{2, 4 * n * c} : Kernels{14, 8 * n * c};
  b.forward(kernels);
  b.backward_input(kernels);
  if (!b.batch().fuses_rotary()) b.module().forward_temporary = b.module().backward_temporary = Bytes{n * c};
  return {b.make("queries", n, b.batch().compute), b.make("keys", n, b.batch().compute), kv};
}

/// Grouped keys and values copied to all heads (transformers' repeat_kv).
Qkv repeat(LayerBuilder& b, const BlockSpec& block, Qkv in) {
  const AttentionSpec& a = block.attention;
  if (a.kv_heads == a.heads) return in;
  const DType dtype = b.batch().compute;
  const std::int64_t k = b.tokens() * a.heads * a.head_dim, v = b.tokens() * a.heads * a.value_dim, c = size_of(dtype);
  b.begin(named(block.names.attention, "repeat_kv"));
  b.read(in.k);
  if (in.v != in.k) b.read(in.v);
  b.forward({2, 2 * (k + v) * c});
  b.backward_input({2, (k + v) * c});
  return {in.q, b.make("keys of all heads", k, dtype), b.make("values of all heads", v, dtype)};
}

void read_and_keep(LayerBuilder& b, const Qkv& in) {
  for (const TensorIndex t : {in.q, in.k, in.v}) {
    b.read(t);
    b.keep(t);
    if (in.q == in.k && in.k == in.v) break;
  }
}

/// Keys and values of fewer heads are read as they are (transformers calls SDPA with enable_gqa), and the output lies token by token, so
/// that transpose and contiguous copy nothing. FlashAttention-2 (arXiv 2307.08691): keeps q, k, v, the output and the log-sum-exp of each
/// row. Backward does five products where forward does two; its FLOPs are counted as four (the convention of MFU) and its density carries
/// the fifth.
TensorIndex flash(LayerBuilder& b, const BlockSpec& block, const Qkv& in) {
  const AttentionSpec& a = block.attention;
  const std::int64_t s = b.batch().sequence, rows = b.tokens() * a.heads, out = rows * a.value_dim;
  const DType dtype = b.batch().compute;
  b.begin(named(block.names.attention, "attention"));
  Module& m = b.module();
  m.core_attention = m.kept_by_selective = true;
  read_and_keep(b, in);
  const TensorIndex context = b.make("context", out, dtype);
  const TensorIndex lse = b.make("log-sum-exp", rows, DType::fp32);
  b.alias_gradient(lse);
  b.keep(context);
  b.keep(lse);
  b.at(context).kept_by_selective = b.at(lse).kept_by_selective = true;
  b.at(lse).core_attention = true;
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(s) * static_cast<double>(a.head_dim + a.value_dim);
  const double density = attention_density(a.causal, a.window, s);
  m.forward.attention.push_back({Flops{flops}, density, a.head_dim, s, false});
  m.forward.kernels += 1;
  m.backward_input.attention.push_back({Flops{2 * flops}, 1.25 * density, a.head_dim, s, true});
  m.backward_input.kernels += 3;
  m.backward_temporary = Bytes{4 * rows * (a.head_dim + 1)};  // dq in fp32 and the row sums of dO * O
  return context;
}

/// Scores, softmax and dropout over s * s: what `core_attention` recomputes.
TensorIndex probabilities(LayerBuilder& b, const BlockSpec& block, const Qkv& in) {
  const AttentionSpec& a = block.attention;
  const std::int64_t s = b.batch().sequence, maps = b.batch().batch * a.heads, n = maps * s * s;
  const DType dtype = b.batch().compute;
  const std::int64_t c = size_of(dtype);
  b.begin(named(block.names.attention, "scores"));
  b.module().core_attention = true;
  b.read(in.q);
  if (in.k != in.q) b.read(in.k);
  b.keep(in.q);
  b.keep(in.k);
  b.product({s, s, a.head_dim, maps}, Factor::tensor);
  const TensorIndex scores = b.make("scores", n, dtype);

  b.begin(named(block.names.attention, "softmax"));
  b.module().core_attention = true;
  b.read(scores);
  const bool wide = (a.softmax_in_fp32 || b.batch().autocast()) && dtype != DType::fp32;  // softmax is on autocast's fp32 list
  b.forward({wide ? 5 : 3, n * (6 * c + (wide ? 10 + c : 0))}, {1, 2 * n * c});           // scale, mask, softmax, casts
  b.backward_input({wide ? 4 : 2, n * (5 * c + (wide ? 12 : 0))}, {1, 3 * n * c});
  b.module().forward_temporary = Bytes{b.batch().compile ? 0 : n * (wide ? 4 : c)};
  TensorIndex result = b.make("softmax", n, wide ? DType::fp32 : dtype);
  b.keep(result);
  if (wide) {
    b.alias_gradient(result);
    b.module().backward_temporary = Bytes{4 * n};
    b.at(result).fused_away = true;
    result = b.make("probabilities", n, dtype);
    if (b.batch().compile) b.keep(result);
  }
  const TensorIndex dropped = dropout(b, named(block.names.attention, "dropout"), result);
  if (dropped != result) b.module().core_attention = true;
  for (TensorIndex t = scores; t <= dropped; ++t) b.at(t).core_attention = true;
  return dropped;
}

/// transformers' eager attention, and the 5as/h term of arXiv 2205.05198 where softmax runs in 16 bits.
TensorIndex plain(LayerBuilder& b, const BlockSpec& block, const Qkv& in) {
  const AttentionSpec& a = block.attention;
  const std::int64_t s = b.batch().sequence, maps = b.batch().batch * a.heads, out = maps * s * a.value_dim;
  const DType dtype = b.batch().compute;
  const TensorIndex p = probabilities(b, block, in);
  b.begin(named(block.names.attention, "context"));
  b.module().core_attention = true;
  b.read(p);
  b.read(in.v);
  b.keep(p);
  b.keep(in.v);
  b.product({s, a.value_dim, s, maps}, Factor::tensor);
  b.forward({1, 2 * out * size_of(dtype)});  // (heads, s, dim) to (s, heads * dim)
  b.backward_input({1, 2 * out * size_of(dtype)});
  b.module().forward_temporary = b.module().backward_temporary = Bytes{out * size_of(dtype)};
  b.module().kept_by_selective = true;
  const TensorIndex context = b.make("context", out, dtype);
  b.at(context).kept_by_selective = true;
  return context;
}

}  // namespace

namespace {

/// One learned logit a head, and the table of relative positions whose rows are added to the scores.
void declare_beside_scores(LayerBuilder& b, const BlockSpec& block) {
  const AttentionSpec& a = block.attention;
  if (!a.sinks && a.bias_rows == 0) return;
  b.begin(named(block.names.attention, "bias"));
  if (a.sinks)
    b.declare({.name = named(block.names.attention, "sinks"), .shape = {a.heads}, .routed_expert = false, .by_rule = false, .tied_to = {}});
  if (a.bias_rows == 0) return;
  const std::int64_t s = b.batch().sequence, n = a.heads * s * s, c = size_of(b.batch().compute);
  b.declare({.name = std::string(a.bias_table), .shape = {a.bias_rows, a.heads}, .routed_expert = false, .by_rule = false, .tied_to = {}});
  b.forward({3, 2 * n * c});
  b.backward_weight({3, 2 * n * c});
  b.keep(b.make("position bias", n, b.batch().compute));
}

/// The output times the sigmoid of a gate that the query projection made.
TensorIndex gate_output(LayerBuilder& b, const BlockSpec& block, TensorIndex context, TensorIndex gate) {
  const std::int64_t n = b.elements(context), c = size_of(b.batch().compute);
  b.begin(named(block.names.attention, "output_gate"));
  b.read(context);
  b.read(gate);
  b.keep(context);
  b.keep(gate);
  b.forward({2, 5 * n * c}, {1, 3 * n * c});
  b.backward_input({4, 8 * n * c}, {1, 5 * n * c});
  const TensorIndex sigmoid = b.make("gate", n, b.batch().compute);
  b.at(sigmoid).fused_away = true;
  b.alias_gradient(sigmoid);
  b.keep(sigmoid);
  return b.make("gated context", n, b.batch().compute);
}

}  // namespace

TensorIndex attention(LayerBuilder& b, const BlockSpec& block, TensorIndex x) {
  const AttentionSpec& a = block.attention;
  const bool latent = a.projection == AttentionSpec::Projection::latent;
  Qkv heads = latent ? project_latent(b, block, x) : project(b, block, x);
  const TensorIndex projected = heads.q;
  if (!latent && a.rotary) heads = rotate(b, block, heads);
  const bool flash_kernel = b.batch().attention == AttentionKind::flash;
  if (!latent && !flash_kernel) heads = repeat(b, block, heads);
  declare_beside_scores(b, block);
  TensorIndex context = flash_kernel ? flash(b, block, heads) : plain(b, block, heads);
  if (a.output_gate) context = gate_output(b, block, context, projected);
  return linear(b, std::string(block.names.out), context,
                {.in = a.heads * a.value_dim, .out = block.hidden, .bias = a.out_bias, .transposed = a.transposed});
}

TensorIndex cross_attention(LayerBuilder& b, const BlockSpec& block, TensorIndex x) {
  BlockSpec of = block;
  of.attention = *block.cross;
  const AttentionSpec& a = of.attention;
  BlockNames& n = of.names;
  n.attention = n.cross, n.q = n.cross_q, n.k = n.cross_k, n.v = n.cross_v, n.out = n.cross_out;
  Qkv heads{};
  heads.q = linear(b, std::string(n.q), x, {.in = of.hidden, .out = a.heads * a.head_dim, .bias = a.qkv_bias});
  // The encoder's output is one tensor of the whole decoder, kept where it was made: each layer reads it.
  b.begin(named(n.cross, "encoder_output"));
  b.read(x);
  const TensorIndex source = b.make("encoder output", b.tokens() * of.hidden, b.batch().stream());
  b.at(source).fused_away = true;
  b.at(source).elements = Elements{0};
  const auto project_source = [&](std::string_view name, std::int64_t out, bool bias) {
    b.begin(std::string(name));
    b.declare("weight", {out, of.hidden});
    if (bias) b.declare("bias", {out});
    b.read(source);
    cast_weight(b, out * of.hidden);
    b.product({b.tokens(), out, of.hidden, 1}, Factor::weight);
    return b.make("output", b.tokens() * out, b.batch().compute);
  };
  heads.k = project_source(n.k, a.kv_heads * a.head_dim, a.qkv_bias && a.k_bias);
  heads.v = project_source(n.v, a.kv_heads * a.value_dim, a.qkv_bias);
  const TensorIndex context = b.batch().attention == AttentionKind::flash ? flash(b, of, heads) : plain(b, of, heads);
  return linear(b, std::string(n.out), context, {.in = a.heads * a.value_dim, .out = of.hidden, .bias = a.out_bias});
}

}  // namespace shardsim
