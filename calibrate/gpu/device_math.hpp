// SPDX-License-Identifier: Apache-2.0
// The trainer's arithmetic on a device, whatever launches its kernels: CUDA (device.cu), or a loop on the host (the tests).
//
// A Launch offers
//   float* take(std::size_t count); void give(float*);            scratch memory, not filled
//   template <class F> void each(Index n, const F& f);            f(0) ... f(n - 1), in any order
//   void product(const Product&);
//   void copy(const void* from, void* to, std::size_t bytes);     on the device
//   void upload(const void* host, void* device, std::size_t bytes); void download(const void* device, void* host, std::size_t bytes);
// All of it happens in the order of the calls; download returns when the data are there.
#pragma once

#include <cmath>

#include "calibrate/execute/training/math.hpp"
#include "calibrate/gpu/elements.hpp"

namespace shardsim::gpu {

/// c (+)= op(a) op(b), row-major with leading dimensions; c is m by n, op(a) m by k, op(b) k by n; `*_transposed`: stored the other way.
struct Product {
  Index m = 0, n = 0, k = 0;
  const float* a = nullptr;
  Index lda = 0;
  bool a_transposed = false;
  const float* b = nullptr;
  Index ldb = 0;
  bool b_transposed = false;
  float* c = nullptr;
  Index ldc = 0;
  bool accumulate = false;
};

template <class Launch>
class DeviceMath final : public execute::Math {
 public:
  using Numbers = execute::Numbers;
  using Matrix = execute::Matrix;
  using Heads = execute::Heads;
  using Tokens = std::span<const std::int32_t>;

  explicit DeviceMath(Launch& launch) : launch_(launch) {}

  // Numbers ----------------------------------------------------------------------------------------------------------------------

  Numbers zeros(std::size_t count) override {
    Numbers values = raw(count);
    launch_.each(size(values), Fill{values.data(), 0.0F});
    return values;
  }
  Numbers numbers(std::span<const float> host) override {
    Numbers values = raw(host.size());
    launch_.upload(host.data(), values.data(), 4 * host.size());
    return values;
  }
  std::vector<float> on_host(const Numbers& values) override {
    std::vector<float> host(values.size());
    launch_.download(values.data(), host.data(), 4 * host.size());
    return host;
  }
  Numbers slice(const Numbers& values, std::size_t begin, std::size_t count) override {
    Numbers part = raw(count);
    launch_.copy(values.data() + begin, part.data(), 4 * count);
    return part;
  }
  void put(Numbers& into, std::size_t begin, const Numbers& part) override {
    launch_.copy(part.data(), into.data() + begin, 4 * part.size());
  }

  // Elements ---------------------------------------------------------------------------------------------------------------------

  void decode(const std::byte* memory, DType type, Numbers& values) override {
    if (type == DType::fp32)
      launch_.copy(memory, values.data(), 4 * values.size());
    else
      launch_.each(size(values), DecodeBf16{reinterpret_cast<const std::uint16_t*>(memory), values.data()});
  }
  void encode(const Numbers& values, DType type, std::byte* memory) override {
    if (type == DType::fp32)
      launch_.copy(values.data(), memory, 4 * values.size());
    else
      launch_.each(size(values), EncodeBf16{values.data(), reinterpret_cast<std::uint16_t*>(memory)});
  }
  void round(Numbers& values, DType type) override {
    if (type == DType::bf16) launch_.each(size(values), RoundBf16{values.data()});
  }
  void add(Numbers& into, const Numbers& values) override { launch_.each(size(into), Add{into.data(), values.data()}); }
  void scale(Numbers& values, float factor) override { launch_.each(size(values), Scale{values.data(), factor}); }
  void update(const execute::UpdateRule& rule, Numbers& weights, const Numbers& gradients, Numbers& first, Numbers& second) override {
    launch_.each(size(weights), Update{rule.adaptive, rule.momentum, rule.decoupled_decay, rule.learning_rate, rule.beta1, rule.beta2,
                                       rule.epsilon, rule.weight_decay, rule.momentum_factor, rule.correction1, rule.correction2,
                                       weights.data(), gradients.data(), first.data(), second.data()});
  }

  // Modules with parameters ------------------------------------------------------------------------------------------------------

  Matrix lookup(const Numbers& table, std::int64_t width, Tokens tokens) override {
    const Numbers ids = on_device(tokens);
    Matrix rows = matrix(static_cast<Index>(tokens.size()), width);
    launch_.each(size(rows.values), Lookup{table.data(), as_tokens(ids), width, rows.values.data()});
    return rows;
  }
  void lookup_backward(const Matrix& dy, Tokens tokens, Numbers& table) override {
    const Numbers ids = on_device(tokens);
    launch_.each(size(table),
                 LookupBackward{dy.values.data(), as_tokens(ids), static_cast<Index>(tokens.size()), dy.columns, table.data()});
  }
  Matrix linear(const Matrix& x, const Numbers& weight, const Numbers& bias, std::int64_t out) override {
    Matrix y = matrix(x.rows, out);
    launch_.product(
        {x.rows, out, x.columns, x.values.data(), x.columns, false, weight.data(), x.columns, true, y.values.data(), out, false});
    if (!bias.empty()) launch_.each(size(y.values), AddBias{y.values.data(), bias.data(), out});
    return y;
  }
  Matrix linear_backward_input(const Matrix& dy, const Numbers& weight, std::int64_t in) override {
    Matrix dx = matrix(dy.rows, in);
    launch_.product({dy.rows, in, dy.columns, dy.values.data(), dy.columns, false, weight.data(), in, false, dx.values.data(), in, false});
    return dx;
  }
  void linear_backward_weight(const Matrix& x, const Matrix& dy, Numbers& weight, Numbers& bias) override {
    if (!weight.empty())
      launch_.product({dy.columns, x.columns, x.rows, dy.values.data(), dy.columns, true, x.values.data(), x.columns, false, weight.data(),
                       x.columns, true});
    if (!bias.empty()) launch_.each(dy.columns, ColumnSums{dy.values.data(), dy.rows, dy.columns, bias.data()});
  }
  Matrix inverse_rms(const Matrix& x, std::int64_t group) override {
    Matrix inverse = matrix(x.rows, x.columns / group);
    launch_.each(size(inverse.values), InverseRms{x.values.data(), group, execute::norm_epsilon, inverse.values.data()});
    return inverse;
  }
  Matrix normalise(const Matrix& x, const Matrix& inverse, std::int64_t group) override {
    Matrix y = like(x);
    launch_.each(size(y.values), Normalise{x.values.data(), inverse.values.data(), group, y.values.data()});
    return y;
  }
  Matrix scale_columns(const Matrix& x, const Numbers& weight) override {
    Matrix y = like(x);
    launch_.each(size(y.values), ScaleColumns{x.values.data(), weight.data(), size(weight), y.values.data()});
    return y;
  }
  Matrix rms_norm_backward(const Matrix& x, const Matrix& inverse, const Matrix& dy, const Numbers& weight,
                           Numbers& weight_gradient) override {
    Matrix dx = like(x);
    const Index groups = size(inverse.values), group = size(weight);
    launch_.each(groups, RmsNormBackward{x.values.data(), inverse.values.data(), dy.values.data(), weight.data(), group, dx.values.data()});
    if (!weight_gradient.empty())
      launch_.each(group,
                   RmsNormWeightGradient{x.values.data(), inverse.values.data(), dy.values.data(), groups, group, weight_gradient.data()});
    return dx;
  }

  // Attention --------------------------------------------------------------------------------------------------------------------

  Matrix rotate(const Matrix& x, std::int64_t head_dim, float sign) override {
    Matrix y = like(x);
    launch_.each(size(y.values), Rotate{x.values.data(), x.columns, head_dim, execute::rotary_base, sign, y.values.data()});
    return y;
  }
  Matrix repeat_heads(const Matrix& x, std::int64_t head_dim, std::int64_t times) override {
    Matrix y = matrix(x.rows, x.columns * times);
    launch_.each(size(y.values), RepeatHeads{x.values.data(), y.columns, head_dim, times, y.values.data()});
    return y;
  }
  Matrix sum_heads(const Matrix& x, std::int64_t head_dim, std::int64_t times) override {
    Matrix y = matrix(x.rows, x.columns / times);
    launch_.each(size(y.values), SumHeads{x.values.data(), y.columns, head_dim, times, y.values.data()});
    return y;
  }
  execute::Attended attend(const Matrix& q, const Matrix& k, const Matrix& v, const Heads& heads) override {
    const Matrix scores = attention_scores(q, k, heads);
    Matrix log_sum_exp = matrix(q.rows, heads.heads);
    launch_.each(scores.rows, LogSumExp{scores.values.data(), q.rows, heads.heads, scale_of(heads.head_dim), log_sum_exp.values.data()});
    return {attention_context(causal_softmax(scores, heads.head_dim), v, heads), std::move(log_sum_exp)};
  }
  execute::AttentionGradients attend_backward(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& log_sum_exp,
                                              const Matrix& dcontext, const Heads& heads) override {
    Matrix p = attention_scores(q, k, heads);
    launch_.each(size(p.values), Probabilities{p.values.data(), log_sum_exp.values.data(), q.rows, heads.heads, scale_of(heads.head_dim)});
    execute::ContextGradients outer = attention_context_backward(p, v, dcontext, heads);
    execute::AttentionGradients d = attention_scores_backward(q, k, causal_softmax_backward(p, outer.probabilities, heads.head_dim), heads);
    d.v = std::move(outer.v);
    return d;
  }
  Matrix attention_scores(const Matrix& q, const Matrix& k, const Heads& h) override {
    const Index s = q.rows;
    Matrix scores = matrix(h.heads * s, s);
    for (Index head = 0; head < h.heads; ++head)
      launch_.product({s, s, h.head_dim, column(q, head * h.head_dim), q.columns, false, column(k, kv_of(head, h) * h.head_dim), k.columns,
                       true, map(scores, head), s, false});
    return scores;
  }
  Matrix causal_softmax(const Matrix& scores, std::int64_t head_dim) override {
    Matrix p = like(scores);
    launch_.each(p.rows, CausalSoftmax{scores.values.data(), scores.columns, scale_of(head_dim), p.values.data()});
    return p;
  }
  Matrix causal_softmax_backward(const Matrix& p, const Matrix& dp, std::int64_t head_dim) override {
    Matrix ds = like(p);
    launch_.each(p.rows, SoftmaxBackward{p.values.data(), dp.values.data(), p.columns, scale_of(head_dim), ds.values.data()});
    return ds;
  }
  Matrix attention_context(const Matrix& p, const Matrix& v, const Heads& h) override {
    const Index s = v.rows;
    Matrix context = matrix(s, h.heads * h.value_dim);
    for (Index head = 0; head < h.heads; ++head)
      launch_.product({s, h.value_dim, s, map(p, head), s, false, column(v, kv_of(head, h) * h.value_dim), v.columns, false,
                       column(context, head * h.value_dim), context.columns, false});
    return context;
  }
  execute::AttentionGradients attention_scores_backward(const Matrix& q, const Matrix& k, const Matrix& ds, const Heads& h) override {
    const Index s = q.rows;
    execute::AttentionGradients d{like(q), {k.rows, k.columns, zeros(k.values.size())}, {}};
    for (Index head = 0; head < h.heads; ++head) {
      const Index own = head * h.head_dim, shared = kv_of(head, h) * h.head_dim;
      launch_.product({s, h.head_dim, s, map(ds, head), s, false, column(k, shared), k.columns, false, column(d.q, own), q.columns, false});
      launch_.product({s, h.head_dim, s, map(ds, head), s, true, column(q, own), q.columns, false, column(d.k, shared), k.columns, true});
    }
    return d;
  }
  execute::ContextGradients attention_context_backward(const Matrix& p, const Matrix& v, const Matrix& dcontext, const Heads& h) override {
    const Index s = v.rows;
    execute::ContextGradients d{like(p), {v.rows, v.columns, zeros(v.values.size())}};
    for (Index head = 0; head < h.heads; ++head) {
      const Index own = head * h.value_dim, shared = kv_of(head, h) * h.value_dim;
      launch_.product({s, s, h.value_dim, column(dcontext, own), dcontext.columns, false, column(v, shared), v.columns, true,
                       map(d.probabilities, head), s, false});
      launch_.product(
          {s, h.value_dim, s, map(p, head), s, true, column(dcontext, own), dcontext.columns, false, column(d.v, shared), v.columns, true});
    }
    return d;
  }

  // Element-wise modules and the loss --------------------------------------------------------------------------------------------

  Matrix silu(const Matrix& x) override {
    Matrix y = like(x);
    launch_.each(size(y.values), Silu{x.values.data(), y.values.data()});
    return y;
  }
  Matrix silu_backward(const Matrix& x, const Matrix& dy) override {
    Matrix dx = like(x);
    launch_.each(size(dx.values), SiluBackward{x.values.data(), dy.values.data(), dx.values.data()});
    return dx;
  }
  Matrix multiply(const Matrix& a, const Matrix& b) override {
    Matrix y = like(a);
    launch_.each(size(y.values), Multiply{a.values.data(), b.values.data(), y.values.data()});
    return y;
  }
  Matrix sum(const Matrix& a, const Matrix& b) override {
    Matrix y = like(a);
    launch_.each(size(y.values), Sum{a.values.data(), b.values.data(), y.values.data()});
    return y;
  }
  Matrix log_softmax(const Matrix& logits) override {
    Matrix y = like(logits);
    launch_.each(logits.rows, LogSoftmax{logits.values.data(), logits.columns, y.values.data()});
    return y;
  }
  Matrix log_softmax_backward(const Matrix& logarithms, const Matrix& d) override {
    Matrix dx = like(d);
    launch_.each(d.rows, LogSoftmaxBackward{logarithms.values.data(), d.values.data(), d.columns, dx.values.data()});
    return dx;
  }
  double sum_of_targets(const Matrix& x, Tokens targets) override {
    const Numbers ids = on_device(targets);
    Numbers picked = raw(targets.size());
    launch_.each(x.rows, PickTargets{x.values.data(), as_tokens(ids), x.columns, picked.data()});
    double total = 0;
    for (const float value : on_host(picked)) total += static_cast<double>(value);
    return total;
  }
  Matrix at_targets(std::int64_t columns, Tokens targets, float value) override {
    const Numbers ids = on_device(targets);
    Matrix d = matrix(static_cast<Index>(targets.size()), columns);
    launch_.each(size(d.values), AtTargets{as_tokens(ids), columns, value, d.values.data()});
    return d;
  }

 private:
  [[nodiscard]] Numbers raw(std::size_t count) {
    if (count == 0) return {};
    return {launch_.take(count), count, &launch_, [](void* launch, float* data) { static_cast<Launch*>(launch)->give(data); }};
  }
  [[nodiscard]] Matrix matrix(Index rows, Index columns) { return {rows, columns, raw(static_cast<std::size_t>(rows * columns))}; }
  [[nodiscard]] Matrix like(const Matrix& x) { return matrix(x.rows, x.columns); }
  [[nodiscard]] static Index size(const Numbers& values) { return static_cast<Index>(values.size()); }

  /// Token ids in scratch memory: they are as wide as the numbers that it is made for.
  [[nodiscard]] Numbers on_device(Tokens tokens) {
    static_assert(sizeof(std::int32_t) == sizeof(float));
    Numbers ids = raw(tokens.size());
    launch_.upload(tokens.data(), ids.data(), 4 * tokens.size());
    return ids;
  }
  [[nodiscard]] static const std::int32_t* as_tokens(const Numbers& ids) { return reinterpret_cast<const std::int32_t*>(ids.data()); }

  [[nodiscard]] static float scale_of(Index head_dim) { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }
  [[nodiscard]] static Index kv_of(Index head, const Heads& h) { return head * h.kv_heads / h.heads; }
  [[nodiscard]] static float* column(Matrix& m, Index at) { return m.values.data() + at; }
  [[nodiscard]] static const float* column(const Matrix& m, Index at) { return m.values.data() + at; }
  /// The map of a head among (heads * s, s).
  [[nodiscard]] static float* map(Matrix& m, Index head) { return m.values.data() + head * m.columns * m.columns; }
  [[nodiscard]] static const float* map(const Matrix& m, Index head) { return m.values.data() + head * m.columns * m.columns; }

  Launch& launch_;
};

}  // namespace shardsim::gpu
