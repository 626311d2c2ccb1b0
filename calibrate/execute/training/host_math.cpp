// SPDX-License-Identifier: Apache-2.0
#include "calibrate/execute/training/host_math.hpp"

#include <algorithm>
#include <functional>

#include "calibrate/execute/training/element.hpp"
#include "calibrate/execute/training/kernels.hpp"
#include "calibrate/execute/training/optimizer.hpp"

namespace shardsim::execute {
namespace {

std::span<float> all(Numbers& values) { return {values.data(), values.size()}; }
std::span<const float> all(const Numbers& values) { return {values.data(), values.size()}; }
std::size_t bytes_in(const Numbers& values, DType type) { return values.size() * static_cast<std::size_t>(size_of(type)); }

class HostMath final : public Math {
 public:
  Numbers zeros(std::size_t count) override { return Numbers::on_host(count); }
  Numbers numbers(std::span<const float> host) override {
    Numbers values = Numbers::on_host(host.size());
    std::copy(host.begin(), host.end(), values.begin());
    return values;
  }
  std::vector<float> on_host(const Numbers& values) override { return {values.begin(), values.end()}; }
  Numbers slice(const Numbers& values, std::size_t begin, std::size_t count) override { return numbers(all(values).subspan(begin, count)); }
  void put(Numbers& into, std::size_t begin, const Numbers& part) override { std::copy(part.begin(), part.end(), into.begin() + begin); }

  void decode(const std::byte* memory, DType type, Numbers& values) override {
    execute::decode({memory, bytes_in(values, type)}, type, all(values));
  }
  void encode(const Numbers& values, DType type, std::byte* memory) override {
    execute::encode(all(values), type, {memory, bytes_in(values, type)});
  }
  void round(Numbers& values, DType type) override {
    for (float& v : values) v = rounded(v, type);
  }
  void add(Numbers& into, const Numbers& values) override {
    std::transform(into.begin(), into.end(), values.begin(), into.begin(), std::plus<>());
  }
  void scale(Numbers& values, float factor) override {
    for (float& v : values) v *= factor;
  }
  void update(const UpdateRule& rule, Numbers& weights, const Numbers& gradients, Numbers& first, Numbers& second) override {
    execute::update(rule, all(weights), all(gradients), all(first), all(second));
  }

  Matrix lookup(const Numbers& table, std::int64_t width, std::span<const std::int32_t> tokens) override {
    Matrix rows(static_cast<std::int64_t>(tokens.size()), width);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const float* row = table.data() + tokens[t] * width;
      std::copy(row, row + width, rows.row(static_cast<std::int64_t>(t)).begin());
    }
    return rows;
  }
  void lookup_backward(const Matrix& dy, std::span<const std::int32_t> tokens, Numbers& table) override {
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const auto row = dy.row(static_cast<std::int64_t>(t));
      float* sums = table.data() + tokens[t] * dy.columns;
      std::transform(row.begin(), row.end(), sums, sums, std::plus<>());
    }
  }
  Matrix linear(const Matrix& x, const Numbers& weight, const Numbers& bias, std::int64_t out) override {
    return execute::linear(x, all(weight), all(bias), out);
  }
  Matrix linear_backward_input(const Matrix& dy, const Numbers& weight, std::int64_t in) override {
    return execute::linear_backward_input(dy, all(weight), in);
  }
  void linear_backward_weight(const Matrix& x, const Matrix& dy, Numbers& weight, Numbers& bias) override {
    execute::linear_backward_weight(x, dy, all(weight), all(bias));
  }
  Matrix inverse_rms(const Matrix& x, std::int64_t size) override { return execute::inverse_rms(x, size); }
  Matrix normalise(const Matrix& x, const Matrix& inverse, std::int64_t size) override { return execute::normalise(x, inverse, size); }
  Matrix scale_columns(const Matrix& x, const Numbers& weight) override { return execute::scale_columns(x, all(weight)); }
  Matrix rms_norm_backward(const Matrix& x, const Matrix& inverse, const Matrix& dy, const Numbers& weight, Numbers& sums) override {
    return execute::rms_norm_backward(x, inverse, dy, all(weight), all(sums));
  }

  Matrix rotate(const Matrix& x, std::int64_t head_dim, float sign) override { return execute::rotate(x, head_dim, sign); }
  Matrix repeat_heads(const Matrix& x, std::int64_t head_dim, std::int64_t times) override {
    return execute::repeat_heads(x, head_dim, times);
  }
  Matrix sum_heads(const Matrix& x, std::int64_t head_dim, std::int64_t times) override { return execute::sum_heads(x, head_dim, times); }
  Attended attend(const Matrix& q, const Matrix& k, const Matrix& v, const Heads& heads) override {
    return execute::attend(q, k, v, heads);
  }
  AttentionGradients attend_backward(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& log_sum_exp, const Matrix& dcontext,
                                     const Heads& heads) override {
    return execute::attend_backward(q, k, v, log_sum_exp, dcontext, heads);
  }
  Matrix attention_scores(const Matrix& q, const Matrix& k, const Heads& heads) override { return execute::attention_scores(q, k, heads); }
  Matrix causal_softmax(const Matrix& scores, std::int64_t head_dim) override { return execute::causal_softmax(scores, head_dim); }
  Matrix causal_softmax_backward(const Matrix& p, const Matrix& dp, std::int64_t head_dim) override {
    return execute::causal_softmax_backward(p, dp, head_dim);
  }
  Matrix attention_context(const Matrix& p, const Matrix& v, const Heads& heads) override {
    return execute::attention_context(p, v, heads);
  }
  AttentionGradients attention_scores_backward(const Matrix& q, const Matrix& k, const Matrix& dscores, const Heads& heads) override {
    return execute::attention_scores_backward(q, k, dscores, heads);
  }
  ContextGradients attention_context_backward(const Matrix& p, const Matrix& v, const Matrix& dcontext, const Heads& heads) override {
    return execute::attention_context_backward(p, v, dcontext, heads);
  }

  Matrix silu(const Matrix& x) override { return execute::silu(x); }
  Matrix silu_backward(const Matrix& x, const Matrix& dy) override { return execute::silu_backward(x, dy); }
  Matrix multiply(const Matrix& a, const Matrix& b) override { return execute::multiply(a, b); }
  Matrix sum(const Matrix& a, const Matrix& b) override { return execute::sum(a, b); }
  Matrix log_softmax(const Matrix& logits) override { return execute::log_softmax(logits); }
  Matrix log_softmax_backward(const Matrix& logarithms, const Matrix& d) override { return execute::log_softmax_backward(logarithms, d); }
  double sum_of_targets(const Matrix& x, std::span<const std::int32_t> targets) override {
    double total = 0;
    for (std::int64_t r = 0; r < x.rows; ++r)
      total += static_cast<double>(x.row(r)[static_cast<std::size_t>(targets[static_cast<std::size_t>(r)])]);
    return total;
  }
  Matrix at_targets(std::int64_t columns, std::span<const std::int32_t> targets, float value) override {
    Matrix d(static_cast<std::int64_t>(targets.size()), columns);
    for (std::int64_t r = 0; r < d.rows; ++r) d.row(r)[static_cast<std::size_t>(targets[static_cast<std::size_t>(r)])] = value;
    return d;
  }
};

}  // namespace

Math& host_math() {
  static HostMath math;
  return math;
}

}  // namespace shardsim::execute
