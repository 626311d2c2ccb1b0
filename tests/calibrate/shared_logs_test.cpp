// SPDX-License-Identifier: Apache-2.0
// Logs and measurements that were published elsewhere: read where they lie beside the project, skipped by name where they do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "calibrate/fit/segment_fit.hpp"
#include "calibrate/fit/statistics.hpp"
#include "calibrate/import/collective_samples.hpp"
#include "calibrate/import/nccl_tests.hpp"
#include "shared_data.hpp"
#include "sim/config/node.hpp"
#include "sim/costs/collectives/collective_curve.hpp"

namespace shardsim {
namespace {

NcclTestsLog read_log(const fs::path& path) {
  const auto log = read_nccl_tests(*read_source(path.string()));
  EXPECT_TRUE(log) << log.error().text();
  return log ? *log : NcclTestsLog{};
}

TEST(SharedLogs, EveryDataRowArrivesAndRanksAreInferred) {
  if (!fs::exists(data() / "nccl_logs/index.csv")) GTEST_SKIP() << "shared/data/nccl_logs is not here";
  for (const auto& row : csv(data() / "nccl_logs/index.csv")) {
    SCOPED_TRACE(row[0]);
    if (row[4] == "1") {
      const auto one_rank = read_nccl_tests(*read_source((data() / "nccl_logs" / row[0]).string()));
      ASSERT_FALSE(one_rank);
      EXPECT_THAT(one_rank.error().text(), ::testing::HasSubstr("one rank"));
      continue;
    }
    const NcclTestsLog log = read_log(data() / "nccl_logs" / row[0]);
    ASSERT_FALSE(log.tables.empty());
    std::size_t rows = 0;
    for (const NcclTestsTable& table : log.tables) {
      rows += table.rows.size();
      EXPECT_EQ(std::to_string(table.ranks), row[4]);
      EXPECT_EQ(name_of(*table.collective), row[1] == "alltoall" ? "all_to_all" : row[1]);
      EXPECT_EQ(table.consistent, !row[0].starts_with("synthetic"));
    }
    EXPECT_EQ(std::to_string(rows), row.size() > 9 && row[9].find_first_not_of("0123456789") == std::string::npos ? row[9] : row[8]);
  }
}

struct Curve {
  std::string gpu;
  Samples samples;
};

/// All-reduce, all-gather and reduce-scatter curves of the public table, minimum of repeats.
std::vector<Curve> curves(const fs::path& file) {
  std::map<std::tuple<std::string, std::string, std::string, std::string>, std::map<std::int64_t, double>> points;
  for (const auto& row : csv(file)) {
    if (row[2] == "alltoall") continue;
    auto& times = points[{row[0], row[1], row[2], row[3]}];
    const double time = std::stod(row[5]);
    const auto [at, fresh] = times.try_emplace(std::stoll(row[4]), time);
    if (!fresh) at->second = std::min(at->second, time);
  }
  std::vector<Curve> result;
  for (const auto& [key, times] : points) {
    Curve curve{std::get<0>(key), {}};
    for (const auto& [size, us] : times) curve.samples.push_back({Bytes{size}, microseconds(us), microseconds(us), microseconds(us), 1});
    result.push_back(std::move(curve));
  }
  return result;
}

struct Errors {
  std::vector<double> all, without_l40s;
  void add(const Curve& curve, double error) {
    all.push_back(error);
    if (curve.gpu != "l40s") without_l40s.push_back(error);
  }
};

/// Points 1, 4, 7 ... are held out; the first and the last size never are.
bool held_out(std::size_t i, std::size_t count) { return i % 3 == 1 && i + 1 < count; }

Samples without_held_out(const Samples& samples) {
  Samples kept;
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (!held_out(i, samples.size())) kept.push_back(samples[i]);
  return kept;
}

TEST(SharedMeasurements, HeldOutSizesArePredicted) {
  const fs::path file = data() / "gpu_measurements/nccl_collectives.csv";
  if (!fs::exists(file)) GTEST_SKIP() << "shared/data/gpu_measurements is not here";
  Errors interpolated, segments;
  for (const Curve& curve : curves(file)) {
    CollectiveFit fit;
    fit.samples = without_held_out(curve.samples);
    fit.segments = fit_segments(fit.samples, 3);
    const CollectiveCurve predictor(fit);
    for (std::size_t i = 0; i < curve.samples.size(); ++i) {
      if (!held_out(i, curve.samples.size())) continue;
      const auto& sample = curve.samples[i];
      interpolated.add(curve, std::abs(predictor.at(sample.size) / sample.median - 1));
      segments.add(curve, std::abs(time_of(fit.segments, sample.size) / sample.median - 1));
    }
  }
  EXPECT_EQ(interpolated.all.size(), 351u);
  EXPECT_LE(median(interpolated.all), 0.03);
  EXPECT_LE(percentile(interpolated.all, 0.9), 0.14);
  EXPECT_LE(median(interpolated.without_l40s), 0.03);
  EXPECT_LE(percentile(interpolated.without_l40s, 0.9), 0.12);
  EXPECT_LE(median(segments.all), 0.04);
  EXPECT_LE(percentile(segments.all, 0.9), 0.18);
  EXPECT_LE(percentile(segments.without_l40s, 0.9), 0.14);
  std::printf("held out: interpolated %.1f/%.1f %%, without L40S %.1f/%.1f %%; three segments %.1f/%.1f %%\n",
              100 * median(interpolated.all), 100 * percentile(interpolated.all, 0.9), 100 * median(interpolated.without_l40s),
              100 * percentile(interpolated.without_l40s, 0.9), 100 * median(segments.all), 100 * percentile(segments.all, 0.9));
}

TEST(SharedMeasurements, ThreeSegmentsFitAndPlainLeastSquaresDoesNot) {
  const fs::path file = data() / "gpu_measurements/nccl_collectives.csv";
  if (!fs::exists(file)) GTEST_SKIP() << "shared/data/gpu_measurements is not here";
  std::vector<double> three, plain;
  for (const Curve& curve : curves(file)) {
    const auto segments = fit_segments(curve.samples, 3);
    const auto line = least_squares_line(curve.samples);
    for (const auto& sample : curve.samples) {
      three.push_back(std::abs(time_of(segments, sample.size) / sample.median - 1));
      plain.push_back(std::abs((line[0].alpha + sample.size / line[0].algbw) / sample.median - 1));
    }
  }
  EXPECT_LE(median(three), 0.025);
  EXPECT_LE(percentile(three, 0.9), 0.08);
  EXPECT_GE(median(plain), 0.2);
  EXPECT_GE(percentile(plain, 0.9), 0.8);
  std::printf("in sample: three segments %.1f/%.1f %%; plain least squares %.0f/%.0f %%\n", 100 * median(three),
              100 * percentile(three, 0.9), 100 * median(plain), 100 * percentile(plain, 0.9));
}

TEST(SharedLogs, FitsOfPublishedSweepsDoNotFall) {
  if (!fs::exists(data() / "nccl_logs")) GTEST_SKIP() << "shared/data/nccl_logs is not here";
  for (const char* name : {"h100_8r_1n_all_reduce_bf16.txt", "h100_8r_1n_all_gather_bf16.txt", "h100_8r_1n_reduce_scatter_bf16.txt",
                           "a100_40g_8r_all_reduce_old_error_cols.txt", "a100_40g_8r_all_gather_old_error_cols.txt"}) {
    CollectiveSamples samples;
    samples.add(read_log(data() / "nccl_logs" / name), name);
    ASSERT_EQ(samples.fits().size(), 1u);
    const CollectiveFit fit = samples.fits()[0];
    const CollectiveCurve curve(fit);
    Seconds last;
    for (std::int64_t size = 256; size < (std::int64_t{1} << 34); size += size / 3) {
      EXPECT_GE(curve.at(Bytes{size}), last) << name << " at " << size;
      last = curve.at(Bytes{size});
    }
    EXPECT_LT(*fit.leave_one_out_p90, 0.4) << name;
  }
}

}  // namespace
}  // namespace shardsim
