// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/segment_fit.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "calibrate/import/collective_samples.hpp"
#include "sim/costs/collectives/collective_curve.hpp"

namespace shardsim {
namespace {

Samples samples_of(const std::vector<CollectiveSegment>& truth, int first_log, int last_log) {
  Samples samples;
  for (int e = first_log; e <= last_log; ++e) {
    const Bytes size{std::int64_t{1} << e};
    const Seconds time = time_of(truth, size);
    samples.push_back({size, time, time, time, 1});
  }
  return samples;
}

TEST(SegmentFit, FindsOneLineAndSaysOne) {
  const std::vector<CollectiveSegment> truth{{std::nullopt, microseconds(12), ByteRate{200e9}}};
  const auto fit = fit_segments(samples_of(truth, 9, 29));
  ASSERT_EQ(fit.size(), 1u);
  EXPECT_NEAR(fit[0].alpha.base() * 1e6, 12, 0.01);
  EXPECT_NEAR(fit[0].algbw.base() / 1e9, 200, 0.1);
  EXPECT_FALSE(fit[0].limit);
}

TEST(SegmentFit, FindsTheBreakpointsOfThree) {
  const std::vector<CollectiveSegment> truth{{kibibytes(16), microseconds(10), ByteRate{20e9}},
                                             {mebibytes(2), microseconds(12), ByteRate{100e9}},
                                             {std::nullopt, microseconds(30), ByteRate{370e9}}};
  const auto fit = fit_segments(samples_of(truth, 9, 29));
  ASSERT_EQ(fit.size(), 3u);
  EXPECT_EQ(fit[0].limit, kibibytes(16));
  EXPECT_EQ(fit[1].limit, mebibytes(2));
  for (int e = 9; e <= 29; ++e)
    EXPECT_NEAR(time_of(fit, Bytes{std::int64_t{1} << e}) / time_of(truth, Bytes{std::int64_t{1} << e}), 1, 0.01) << e;
}

TEST(SegmentFit, AnOutlierDoesNotBendTheLine) {
  const std::vector<CollectiveSegment> truth{{std::nullopt, microseconds(12), ByteRate{200e9}}};
  Samples samples = samples_of(truth, 9, 29);
  samples[10].median = samples[10].median * 3;
  const auto fit = fit_segments(samples, 1);
  EXPECT_NEAR(fit[0].alpha.base() * 1e6, 12, 1.5);
  EXPECT_NEAR(fit[0].algbw.base() / 1e9, 200, 20);
}

TEST(SegmentFit, FewPointsGiveFewSegments) {
  const Samples one{{kibibytes(1), microseconds(5), microseconds(5), microseconds(5), 1}};
  EXPECT_EQ(fit_segments(one, 3).size(), 1u);
  EXPECT_NEAR(time_of(fit_segments(one), kibibytes(1)).base(), 5e-6, 1e-12);
  const std::vector<CollectiveSegment> truth{{std::nullopt, microseconds(12), ByteRate{200e9}}};
  EXPECT_EQ(fit_segments(samples_of(truth, 20, 21), 4).size(), 1u);
  EXPECT_TRUE(fit_segments({}).empty());
}

TEST(SegmentFit, TimesThatFallOrStayGiveAFiniteRate) {
  for (const double factor : {1.0, 0.9, 0.2}) {
    Samples samples;
    Seconds time = microseconds(4000);
    for (int e = 10; e <= 20; e += 2, time = time * factor) samples.push_back({Bytes{std::int64_t{1} << e}, time, time, time, 1});
    for (const int count : {0, 1, 2})
      for (const CollectiveSegment& segment : fit_segments(samples, count)) {
        EXPECT_TRUE(std::isfinite(segment.algbw.base())) << factor << ' ' << count;
        EXPECT_TRUE(std::isfinite(segment.alpha.base())) << factor << ' ' << count;
      }
  }
}

TEST(SegmentFit, PlainLeastSquaresMissesSmallSizes) {
  const std::vector<CollectiveSegment> truth{{kibibytes(64), microseconds(10), ByteRate{20e9}},
                                             {std::nullopt, microseconds(60), ByteRate{300e9}}};
  const Samples samples = samples_of(truth, 9, 29);
  const auto line = least_squares_line(samples);
  EXPECT_GT(std::abs((line[0].alpha / samples[0].median) - 1), 1.0);
  EXPECT_LT(std::abs(time_of(fit_segments(samples), samples[0].size) / samples[0].median - 1), 0.02);
}

TEST(SegmentFit, LeaveOneOutPredictsEachPointFromTheOthers) {
  Samples samples;
  for (const auto& [size, us] : {std::pair{1000, 10.0}, {2000, 30.0}, {3000, 30.0}, {4000, 40.0}})
    samples.push_back({Bytes{size}, microseconds(us), microseconds(us), microseconds(us), 1});
  const auto errors = leave_one_out_errors(samples);
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_NEAR(errors[0], 1.0 / 3, 1e-9);  // (10 + 30) / 2 = 20 against 30
  EXPECT_NEAR(errors[1], 1.0 / 6, 1e-9);  // (30 + 40) / 2 = 35 against 30
}

TEST(CollectiveSamples, RepeatsBecomeMinimumMedianAndP90) {
  CollectiveSamples samples;
  const CollectiveSamples::Group group{.collective = Collective::all_gather, .ranks = 4, .nodes = 1, .algorithm = "ring"};
  for (const double us : {30., 10., 20.}) samples.add(group, kibibytes(4), microseconds(us));
  samples.note_origin(group, "measured: here");
  samples.note_origin(group, "measured: here");
  const auto fits = samples.fits();
  ASSERT_EQ(fits.size(), 1u);
  EXPECT_EQ(fits[0].origin, "measured: here");
  ASSERT_EQ(fits[0].samples.size(), 1u);
  EXPECT_NEAR(fits[0].samples[0].min.base(), 10e-6, 1e-12);
  EXPECT_NEAR(fits[0].samples[0].median.base(), 20e-6, 1e-12);
  EXPECT_NEAR(fits[0].samples[0].p90.base(), 28e-6, 1e-12);
  EXPECT_EQ(fits[0].samples[0].repetitions, 3);
}

TEST(CollectiveSamples, NewFitsReplaceThoseOfTheSameGroup) {
  Profile base;
  CollectiveFit old;
  old.ranks = 8;
  old.algorithm = "nvls";
  base.collectives = {old, old};
  base.collectives[1].ranks = 4;
  CollectiveFit fit = old;
  fit.algorithm = "unknown";
  const Profile merged = with_fits(base, {fit});
  ASSERT_EQ(merged.collectives.size(), 2u);
  EXPECT_EQ(merged.collectives[0].ranks, 4);
  EXPECT_EQ(merged.collectives[1].algorithm, "unknown");
}

}  // namespace
}  // namespace shardsim
