// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/gemm_fit.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "calibrate/fit/statistics.hpp"
#include "shared_data.hpp"
#include "sim/costs/products.hpp"

namespace shardsim {
namespace {

Gpu gpu_of(double tflops, double hbm_gbs, int multiprocessors) {
  Gpu gpu;
  gpu.peak = {{DType::bf16, FlopRate{tflops * 1e12}}};
  gpu.memory_bandwidth = ByteRate{hbm_gbs * 1e9};
  gpu.multiprocessors = multiprocessors;
  return gpu;
}

TEST(GemmFit, FindsTheParametersThatMadeThePoints) {
  Gpu truth = gpu_of(300, 2000, 108);
  truth.gemm = {.launch = microseconds(4.2), .efficiency = 0.71, .memory_efficiency = 0.83, .table = {}};
  GemmPoints points;
  for (std::int64_t m = 16; m <= 16384; m *= 4)
    for (std::int64_t n = 128; n <= 8192; n *= 4)
      for (std::int64_t k = 128; k <= 8192; k *= 8) points.push_back({m, n, k, roofline(truth, truth.gemm, {m, n, k, 1}, DType::bf16)});
  const GemmModel fit = fit_gemm(gpu_of(300, 2000, 108), points);
  EXPECT_NEAR(fit.launch.base() * 1e6, 4.2, 0.01);
  EXPECT_NEAR(fit.efficiency, 0.71, 0.001);
  EXPECT_NEAR(fit.memory_efficiency, 0.83, 0.001);
  EXPECT_EQ(fit.tile_m, 0);
}

TEST(GemmFit, FindsTheTileOfWaves) {
  Gpu truth = gpu_of(989, 3350, 132);
  truth.gemm = {.launch = microseconds(3), .efficiency = 0.8, .memory_efficiency = 0.8, .tile_m = 128, .tile_n = 256, .table = {}};
  GemmPoints points;
  for (std::int64_t m = 1024; m <= 16384; m += 1280)
    for (std::int64_t n = 512; n <= 8192; n += 1536)
      points.push_back({m, n, 4096, roofline(truth, truth.gemm, {m, n, 4096, 1}, DType::bf16)});
  const GemmModel fit = fit_gemm(gpu_of(989, 3350, 132), points);
  EXPECT_EQ(fit.tile_m, 128);
  EXPECT_EQ(fit.tile_n, 256);
}

TEST(SpreadOut, TakesTheCornersFirst) {
  GemmPoints points;
  for (std::int64_t m : {1, 10, 100, 1000}) points.push_back({m, 1, 1, Seconds{1}});
  const GemmPoints two = spread_out(points, 2);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].m, 1);
  EXPECT_EQ(two[1].m, 1000);
  EXPECT_EQ(spread_out(points, 9).size(), 4u);
}

struct Machine {
  const char* name;
  double tflops, hbm;
  int multiprocessors;
};

GemmPoints published(const Machine& machine) {
  GemmPoints points;
  for (const auto& row : csv(data() / "gpu_measurements" / (std::string("gemm_bf16_") + machine.name + ".csv")))
    if (const std::int64_t m = std::stoll(row[0]); m >= 1024)
      points.push_back({m, std::stoll(row[1]), std::stoll(row[2]), microseconds(std::stod(row[3]))});
  return points;
}

struct Quality {
  double median, p90;
};

/// Errors of products that took no part in the calibration; mean over five seeds.
Quality held_out_errors(const Machine& machine, std::size_t calibration, bool table) {
  Quality mean{0, 0};
  constexpr int seeds = 5;
  GemmPoints points = published(machine);
  for (unsigned seed = 0; seed < seeds; ++seed) {
    std::mt19937 random(seed);
    std::shuffle(points.begin(), points.end(), random);
    const std::size_t count = calibration > 0 ? calibration : points.size() * 2 / 3;
    const GemmPoints known(points.begin(), points.begin() + static_cast<std::ptrdiff_t>(count));
    Gpu gpu = gpu_of(machine.tflops, machine.hbm, machine.multiprocessors);
    gpu.gemm = fit_gemm(gpu, known);
    if (table) gpu.gemm.table = known;
    const GemmPredictor predictor(gpu);
    std::vector<double> errors;
    for (std::size_t i = count; i < points.size(); ++i)
      errors.push_back(std::abs(predictor.time({points[i].m, points[i].n, points[i].k, 1}, DType::bf16) / points[i].time - 1));
    mean.median += median(errors) / seeds;
    mean.p90 += percentile(errors, 0.9) / seeds;
  }
  return mean;
}

class PublishedProducts : public ::testing::TestWithParam<Machine> {};

TEST_P(PublishedProducts, HeldOutShapesArePredicted) {
  if (!fs::exists(data() / "gpu_measurements")) GTEST_SKIP() << "shared/data/gpu_measurements is not here";
  const Quality few = held_out_errors(GetParam(), 60, false);
  EXPECT_LE(few.median, 0.09);
  EXPECT_LE(few.p90, 0.28);
  const Quality many = held_out_errors(GetParam(), 0, true);
  EXPECT_LE(many.median, 0.05);
  EXPECT_LE(many.p90, 0.19);
  std::printf("%s: 60 shapes %.1f/%.1f %%, two thirds with residuals %.1f/%.1f %%\n", GetParam().name, 100 * few.median, 100 * few.p90,
              100 * many.median, 100 * many.p90);
}

INSTANTIATE_TEST_SUITE_P(Gpus, PublishedProducts,
                         ::testing::Values(Machine{"a100_sxm", 312, 2039, 108}, Machine{"h100_sxm", 989, 3350, 132},
                                           Machine{"h200_sxm", 989, 4800, 132}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace shardsim
