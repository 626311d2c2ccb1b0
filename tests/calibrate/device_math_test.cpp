// SPDX-License-Identifier: Apache-2.0
// The device's kernels, run by a loop on the host, against the trainer's own on Eigen.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "calibrate/execute/training/element.hpp"
#include "calibrate/execute/training/host_math.hpp"
#include "calibrate/execute/training/optimizer.hpp"
#include "loop_device.hpp"

namespace shardsim::execute {
namespace {

std::vector<float> values_of(const Numbers& values) { return {values.begin(), values.end()}; }

void expect_near(const Numbers& device, const Numbers& host, float tolerance = 2e-5F) {
  ASSERT_EQ(device.size(), host.size());
  for (std::size_t i = 0; i < host.size(); ++i) ASSERT_NEAR(device[i], host[i], tolerance * (1 + std::abs(host[i]))) << "element " << i;
}
void expect_near(const Matrix& device, const Matrix& host, float tolerance = 2e-5F) {
  ASSERT_EQ(device.rows, host.rows);
  ASSERT_EQ(device.columns, host.columns);
  expect_near(device.values, host.values, tolerance);
}

class DeviceMathTest : public testing::Test {
 protected:
  ~DeviceMathTest() override { EXPECT_EQ(device_.launch().live, 0) << "scratch memory is not given back"; }

  Numbers random(std::size_t count) {
    Numbers values = Numbers::on_host(count);
    for (float& v : values) v = distribution_(generator_);
    return values;
  }
  Matrix random(std::int64_t rows, std::int64_t columns) { return {rows, columns, random(static_cast<std::size_t>(rows * columns))}; }
  static Numbers copy(const Numbers& values) { return host_math().numbers({values.data(), values.size()}); }
  Math& math() { return device_.math(); }

  test::LoopDevice device_;
  std::mt19937 generator_{7};
  std::uniform_real_distribution<float> distribution_{-1.0F, 1.0F};
};

TEST_F(DeviceMathTest, RoundsToBf16AsTheHostDoes) {
  std::vector<float> values{0.0F,         -0.0F, 1.0F, 1.00390625F, 1.01171875F, 3.4e38F, -1e-40F, std::numeric_limits<float>::infinity(),
                            std::nanf("")};
  for (int i = 0; i < 1000; ++i) values.push_back(std::ldexp(distribution_(generator_), i % 60 - 30));
  const Numbers numbers = math().numbers(values);
  std::vector<std::byte> device(2 * values.size()), host(2 * values.size());
  math().encode(numbers, DType::bf16, device.data());
  encode(values, DType::bf16, host);
  EXPECT_EQ(device, host);
  Numbers back = math().zeros(values.size());
  math().decode(device.data(), DType::bf16, back);
  Numbers rounded_in_place = copy(numbers);
  math().round(rounded_in_place, DType::bf16);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(back[i]), std::bit_cast<std::uint32_t>(rounded(values[i], DType::bf16)));
    EXPECT_EQ(std::bit_cast<std::uint32_t>(rounded_in_place[i]), std::bit_cast<std::uint32_t>(back[i]));
  }
  math().round(rounded_in_place, DType::fp32);  // leaves everything alone
  EXPECT_EQ(std::bit_cast<std::uint32_t>(rounded_in_place[3]), std::bit_cast<std::uint32_t>(back[3]));
}

TEST_F(DeviceMathTest, MovesNumbers) {
  Numbers values = math().numbers(std::vector<float>{1, 2, 3, 4, 5});
  EXPECT_EQ(values_of(math().slice(values, 1, 3)), (std::vector<float>{2, 3, 4}));
  math().put(values, 3, math().numbers(std::vector<float>{8, 9}));
  EXPECT_EQ(math().on_host(values), (std::vector<float>{1, 2, 3, 8, 9}));
  math().scale(values, 2);
  math().add(values, math().numbers(std::vector<float>{1, 1, 1, 1, 1}));
  EXPECT_EQ(math().on_host(values), (std::vector<float>{3, 5, 7, 17, 19}));
  EXPECT_EQ(math().on_host(math().zeros(2)), (std::vector<float>{0, 0}));
  EXPECT_TRUE(math().on_host(math().zeros(0)).empty());
}

TEST_F(DeviceMathTest, ModulesWithParameters) {
  Math& host = host_math();
  const std::vector<std::int32_t> tokens{3, 0, 3, 6, 1};
  const Numbers table = random(7 * 4);
  expect_near(math().lookup(table, 4, tokens), host.lookup(table, 4, tokens), 0);
  const Matrix dy = random(5, 4);
  Numbers sums = random(7 * 4), expected = copy(sums);
  math().lookup_backward(dy, tokens, sums);
  host.lookup_backward(dy, tokens, expected);
  expect_near(sums, expected);

  const Matrix x = random(5, 6), d = random(5, 3);
  const Numbers weight = random(3 * 6), bias = random(3);
  expect_near(math().linear(x, weight, bias, 3), host.linear(x, weight, bias, 3));
  expect_near(math().linear(x, weight, {}, 3), host.linear(x, weight, {}, 3));
  expect_near(math().linear_backward_input(d, weight, 6), host.linear_backward_input(d, weight, 6));
  Numbers dw = random(3 * 6), db = random(3), expected_dw = copy(dw), expected_db = copy(db), none;
  math().linear_backward_weight(x, d, dw, db);
  host.linear_backward_weight(x, d, expected_dw, expected_db);
  expect_near(dw, expected_dw);
  expect_near(db, expected_db);
  math().linear_backward_weight(x, d, none, db);
  host.linear_backward_weight(x, d, none, expected_db);
  expect_near(db, expected_db);
}

// Groups smaller than a row too: queries' and keys' norms are by head.
TEST_F(DeviceMathTest, Norms) {
  Math& host = host_math();
  for (const std::int64_t size : {8, 4}) {
    const Matrix x = random(5, 8), dy = random(5, 8);
    const Numbers weight = random(static_cast<std::size_t>(size));
    const Matrix inverse = host.inverse_rms(x, size);
    expect_near(math().inverse_rms(x, size), inverse);
    expect_near(math().normalise(x, inverse, size), host.normalise(x, inverse, size), 0);
    expect_near(math().scale_columns(x, weight), host.scale_columns(x, weight), 0);
    Numbers sums = random(static_cast<std::size_t>(size)), expected = copy(sums), none;
    expect_near(math().rms_norm_backward(x, inverse, dy, weight, sums), host.rms_norm_backward(x, inverse, dy, weight, expected));
    expect_near(sums, expected);
    expect_near(math().rms_norm_backward(x, inverse, dy, weight, none), host.rms_norm_backward(x, inverse, dy, weight, none));
  }
}

// Grouped heads, and values narrower than keys: no two strides are equal.
TEST_F(DeviceMathTest, Attention) {
  Math& host = host_math();
  const Heads h{.heads = 6, .kv_heads = 2, .head_dim = 8, .value_dim = 5};
  const Matrix q = random(7, 48), k = random(7, 16), v = random(7, 10), dcontext = random(7, 30);
  expect_near(math().rotate(q, 8, 1.0F), host.rotate(q, 8, 1.0F));
  expect_near(math().rotate(q, 8, -1.0F), host.rotate(q, 8, -1.0F));
  expect_near(math().repeat_heads(k, 8, 3), host.repeat_heads(k, 8, 3), 0);
  expect_near(math().sum_heads(q, 8, 3), host.sum_heads(q, 8, 3));
  const Matrix scores = host.attention_scores(q, k, h);
  expect_near(math().attention_scores(q, k, h), scores);
  const Matrix p = host.causal_softmax(scores, 8), dp = random(42, 7);
  expect_near(math().causal_softmax(scores, 8), p);
  expect_near(math().causal_softmax_backward(p, dp, 8), host.causal_softmax_backward(p, dp, 8));
  expect_near(math().attention_context(p, v, h), host.attention_context(p, v, h));
  const AttentionGradients d = math().attention_scores_backward(q, k, dp, h), e = host.attention_scores_backward(q, k, dp, h);
  expect_near(d.q, e.q);
  expect_near(d.k, e.k);
  const ContextGradients c = math().attention_context_backward(p, v, dcontext, h), f = host.attention_context_backward(p, v, dcontext, h);
  expect_near(c.probabilities, f.probabilities);
  expect_near(c.v, f.v);
}

TEST_F(DeviceMathTest, FlashAttention) {
  Math& host = host_math();
  const Heads h{.heads = 6, .kv_heads = 2, .head_dim = 8, .value_dim = 5};
  const Matrix q = random(7, 48), k = random(7, 16), v = random(7, 10), dcontext = random(7, 30);
  const Attended forward = math().attend(q, k, v, h), expected = host.attend(q, k, v, h);
  expect_near(forward.context, expected.context);
  expect_near(forward.log_sum_exp, expected.log_sum_exp);
  const AttentionGradients d = math().attend_backward(q, k, v, expected.log_sum_exp, dcontext, h);
  const AttentionGradients e = host.attend_backward(q, k, v, expected.log_sum_exp, dcontext, h);
  expect_near(d.q, e.q);
  expect_near(d.k, e.k);
  expect_near(d.v, e.v);
}

TEST_F(DeviceMathTest, ElementWiseModulesAndTheLoss) {
  Math& host = host_math();
  const Matrix a = random(5, 6), b = random(5, 6);
  expect_near(math().silu(a), host.silu(a));
  expect_near(math().silu_backward(a, b), host.silu_backward(a, b));
  expect_near(math().multiply(a, b), host.multiply(a, b), 0);
  expect_near(math().sum(a, b), host.sum(a, b), 0);
  const Matrix logarithms = host.log_softmax(a);
  expect_near(math().log_softmax(a), logarithms);
  expect_near(math().log_softmax_backward(logarithms, b), host.log_softmax_backward(logarithms, b));
  const std::vector<std::int32_t> targets{5, 0, 2, 2, 4};
  EXPECT_DOUBLE_EQ(math().sum_of_targets(a, targets), host.sum_of_targets(a, targets));
  expect_near(math().at_targets(6, targets, -0.5F), host.at_targets(6, targets, -0.5F), 0);
}

TEST_F(DeviceMathTest, Optimizers) {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::adam, OptimizerKind::adamw}) {
    const UpdateRule rule = rule_of(kind, {}, 3);
    Numbers weights = random(9), gradients = random(9), first = random(9), second = random(9);
    for (float& v : second) v = std::abs(v);
    Numbers expected = copy(weights), expected_first = copy(first), expected_second = copy(second);
    math().update(rule, weights, gradients, first, second);
    host_math().update(rule, expected, gradients, expected_first, expected_second);
    expect_near(weights, expected, 1e-7F);
    expect_near(first, expected_first, 1e-7F);
    expect_near(second, expected_second, 1e-7F);
  }
}

}  // namespace
}  // namespace shardsim::execute
