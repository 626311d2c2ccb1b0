// SPDX-License-Identifier: Apache-2.0
// Prices by class: attention by head size and length, products by shape and format, the host by its calls, and what chance costs.
#include <gtest/gtest.h>

#include <cmath>

#include "sim/costs/cost_model.hpp"
#include "sim/costs/jitter.hpp"
#include "sim/schedule/schedule_builder.hpp"

namespace shardsim {
namespace {

Cluster round_cluster() {
  Cluster cluster;
  Gpu& gpu = cluster.profile.gpu;
  gpu.peak = {{DType::bf16, FlopRate{100e12}}, {DType::fp8, FlopRate{200e12}}};
  gpu.memory_bandwidth = ByteRate{1e12};
  gpu.host_link = ByteRate{10e9};
  gpu.multiprocessors = 100;
  gpu.gemm = {.launch = Seconds{}, .efficiency = 1, .memory_efficiency = 1};
  gpu.elementwise_efficiency = 1;
  gpu.optimizer_efficiency = 0.5;
  gpu.kernel_launch = microseconds(4);
  gpu.collective_launch = gpu.device_kernel_gap = Seconds{};
  return cluster;
}

/// Forward of one head of `rows` queries in all.
FlashAttention attention(std::int64_t head_dim, std::int64_t sequence, double rows) {
  return {.flops = Flops{4 * rows * static_cast<double>(sequence * head_dim)}, .density = 0.5, .head_dim = head_dim, .sequence = sequence};
}

TEST(AttentionPredictor, InterpolatesSharesInLogarithmsAndClampsBeyondThem) {
  Gpu gpu = round_cluster().profile.gpu;
  gpu.attention.table = {{64, 1024, 0.2}, {64, 4096, 0.4}, {128, 1024, 0.3}, {128, 4096, 0.6}};
  const AttentionPredictor predictor(gpu);
  EXPECT_DOUBLE_EQ(predictor.share(64, 1024), 0.2);
  EXPECT_DOUBLE_EQ(predictor.share(128, 4096), 0.6);
  EXPECT_NEAR(predictor.share(64, 2048), std::sqrt(0.2 * 0.4), 1e-12);
  EXPECT_NEAR(predictor.share(96, 1024), 0.2 * std::pow(1.5, std::log(1.5) / std::log(2.0)), 1e-12);
  EXPECT_DOUBLE_EQ(predictor.share(32, 16), 0.2);
  EXPECT_DOUBLE_EQ(predictor.share(256, 1 << 20), 0.6);
}

TEST(AttentionPredictor, FillsTheDeviceByBlocksAndRunsBackwardAtTheRatioOfTheEfficiencies) {
  Gpu gpu = round_cluster().profile.gpu;
  gpu.attention_efficiency = 0.5;
  gpu.attention_backward_efficiency = 0.25;
  gpu.attention = {.launch = microseconds(3), .half_waves = 2, .table = {{128, 1024, 0.5}}};
  const AttentionPredictor predictor(gpu);
  const FlashAttention forward = attention(128, 1024, 128.0 * 100 * 2);  // two waves: half of the rate
  const double at_half = forward.flops.base() * 0.5 / (100e12 * 0.5 * 0.5);
  EXPECT_NEAR(predictor.time(forward, FlopRate{100e12}).base(), 3e-6 + at_half, 1e-12);
  FlashAttention backward = forward;
  backward.backward = true;
  backward.flops = forward.flops * 2;
  EXPECT_NEAR(predictor.time(backward, FlopRate{100e12}).base(), 3e-6 + 4 * at_half, 1e-12);
}

TEST(GemmPredictor, ResidualsFollowTheAreaMoreThanTheRatioOfAProduct) {
  Gpu gpu = round_cluster().profile.gpu;
  const auto slow = [&](std::int64_t m, std::int64_t n, double factor) {
    return GemmModel::Point{m, n, 4096, roofline(gpu, gpu.gemm, {m, n, 4096, 1}, DType::bf16) * factor};
  };
  gpu.gemm.table = {slow(2048, 2048, 2), slow(4096, 4096, 1), slow(1024, 1024, 1),
                    slow(8192, 2048, 1), slow(512, 2048, 1),  slow(8192, 8192, 1)};
  const GemmPredictor predictor(gpu);
  const auto ratio = [&](std::int64_t m, std::int64_t n) {
    return predictor.time({m, n, 4096, 1}, DType::bf16) / roofline(gpu, gpu.gemm, {m, n, 4096, 1}, DType::bf16);
  };
  EXPECT_DOUBLE_EQ(ratio(2048, 2048), 2);
  EXPECT_GT(ratio(8192, 512), 1.6);  // the same tiles in another order
  EXPECT_LT(ratio(4096, 2048), 1.3);
}

TEST(GemmPredictor, Fp8HasAModelOfItsOwnAndThePowerLimitSlowsBoth) {
  Gpu gpu = round_cluster().profile.gpu;
  gpu.gemm_fp8 = GemmModel{.launch = Seconds{}, .efficiency = 0.5, .memory_efficiency = 1};
  const MatrixProduct product{1 << 14, 1 << 14, 1 << 14, 1};
  EXPECT_NEAR(GemmPredictor(gpu).time(product, DType::fp8) / GemmPredictor(gpu).time(product, DType::bf16), 1, 0.01);
  gpu.gemm.power_limit = 0.8;
  EXPECT_NEAR(GemmPredictor(gpu).time(product, DType::fp8) / GemmPredictor(gpu).time(product, DType::bf16), 0.8, 0.01);
}

TEST(CostModel, AStackScalesEachClassOnItsOwn) {
  const Cluster cluster = round_cluster();
  Work products{.products = {{1024, 1024, 1024, 1}}}, memory{.memory = Bytes{1'000'000}};
  Stack stack;
  stack.rates = {.products = 0.5, .attention = 1, .memory_bound = 0.25, .optimizer = 2};
  const CostModel bare(cluster), stacked(cluster, stack);
  EXPECT_NEAR(stacked.work(products) / bare.work(products), 2, 1e-12);
  EXPECT_NEAR(stacked.work(memory) / bare.work(memory), 4, 1e-12);
  EXPECT_NEAR(stacked.optimizer_work(memory) / bare.optimizer_work(memory), 0.5, 1e-12);
  EXPECT_NEAR(bare.optimizer_work(memory) / bare.work(memory), 2, 1e-12);
}

TEST(CostModel, TheHostPaysForEagerKernelsLibrariesAndCalls) {
  Cluster cluster = round_cluster();
  cluster.profile.node.host_speed = 2;
  Stack stack;
  stack.kernel = microseconds(16);
  stack.library_kernel = microseconds(2);
  stack.calls[static_cast<std::size_t>(HostCall::fsdp_pre_forward)] = microseconds(100);
  ScheduleBuilder build;
  const WorkId work = build.work({.memory = Bytes{1000}, .kernels = 3});
  build.call(HostCall::fsdp_pre_forward, 2);
  const OpId eager = build.compute({"forward", {}}, work, Pass::forward, {0, 0, 1});
  const OpId library = build.compute({"norm", {}}, work, Pass::backward, {});
  const Schedule& schedule = build.schedule();
  const CostModel costs(cluster, stack);
  EXPECT_EQ(costs.cost(schedule.at(eager), schedule).host, SimTime::from(microseconds((3 * 20 + 200) / 2.0)));
  EXPECT_EQ(costs.cost(schedule.at(library), schedule).host, SimTime::from(microseconds(3 * 6 / 2.0)));
}

TEST(CostModel, KernelsAreThoseOfTheSlowestRank) {
  Cluster cluster = round_cluster();
  cluster.profile.spread = {.compute = 0.02, .collectives = 0};
  ScheduleBuilder build;
  const OpId op = build.compute({"forward", {}}, build.work({.memory = Bytes{1'000'000'000}}), Pass::forward, {0, 0, 1});
  const CostModel costs(cluster);
  const auto seconds = [&](std::int64_t world) {
    build.schedule().world_size = world;
    return costs.cost(build.schedule().at(op), build.schedule()).device.seconds().base();
  };
  EXPECT_DOUBLE_EQ(seconds(1), 1e-3);
  EXPECT_NEAR(seconds(1024) / seconds(1), 1 + 0.02 * expected_maximum(1024), 1e-6);
}

// Exact values: 1/sqrt(pi) for two; Harter, Expected values of normal order statistics (1961) for the others.
TEST(Jitter, ExpectedMaximumIsThatOfNormalValues) {
  EXPECT_EQ(expected_maximum(1), 0);
  EXPECT_NEAR(expected_maximum(2), 0.5642, 0.03);
  EXPECT_NEAR(expected_maximum(8), 1.4236, 0.01);
  EXPECT_NEAR(expected_maximum(100), 2.5076, 0.01);
  for (std::int64_t n = 2; n < 1 << 24; n *= 2) EXPECT_GT(expected_maximum(2 * n), expected_maximum(n));
}

TEST(Jitter, SamplesAreNormalAndDependOnTheirSeedAlone) {
  double sum = 0, squares = 0, most = -10, mean_of_most = 0;
  constexpr int ranks = 64, calls = 400;
  for (int c = 0; c < calls; ++c) {
    most = -10;
    for (int r = 0; r < ranks; ++r) {
      const double x = sampled_normal(7, static_cast<std::uint64_t>(r), static_cast<std::uint64_t>(c));
      sum += x;
      squares += x * x;
      most = std::max(most, x);
    }
    mean_of_most += most / calls;
  }
  EXPECT_NEAR(sum / (ranks * calls), 0, 0.02);
  EXPECT_NEAR(squares / (ranks * calls), 1, 0.03);
  EXPECT_NEAR(mean_of_most, expected_maximum(ranks), 0.06);
  EXPECT_EQ(sampled_normal(7, 3, 5), sampled_normal(7, 3, 5));
  EXPECT_NE(sampled_normal(7, 3, 5), sampled_normal(8, 3, 5));
}

}  // namespace
}  // namespace shardsim
