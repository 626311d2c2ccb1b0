// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/collective_curve.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shardsim {
namespace {

CollectiveFit::Sample sample(std::int64_t size, double us) {
  return {Bytes{size}, microseconds(us), microseconds(us), microseconds(us), 1};
}

TEST(NonDecreasing, PoolsAdjacentViolators) {
  EXPECT_THAT(non_decreasing({1, 3, 2, 2, 5}),
              ::testing::ElementsAre(1, ::testing::DoubleEq(7.0 / 3), ::testing::DoubleEq(7.0 / 3), ::testing::DoubleEq(7.0 / 3), 5));
  EXPECT_THAT(non_decreasing({3, 2, 1}), ::testing::Each(::testing::DoubleEq(2)));
  EXPECT_TRUE(non_decreasing({}).empty());
}

TEST(Segments, LimitsAreInclusiveAndTimeNeverFalls) {
  const std::vector<CollectiveSegment> segments{{kibibytes(16), microseconds(10), ByteRate{1e9}},
                                                {std::nullopt, microseconds(1), ByteRate{100e9}}};
  EXPECT_NEAR(time_of(segments, kibibytes(16)).base(), 10e-6 + 16384e-9, 1e-15);
  EXPECT_EQ(time_of(segments, kibibytes(17)), time_of(segments, kibibytes(16)));
  EXPECT_NEAR(time_of(segments, Bytes{100'000'000}).base(), 1001e-6, 1e-12);
}

TEST(Curve, InterpolatesLinearlyInBytes) {
  CollectiveFit fit;
  fit.samples = {sample(1000, 10), sample(3000, 20), sample(9000, 80)};
  const CollectiveCurve curve(fit);
  EXPECT_NEAR(curve.at(Bytes{2000}).base(), 15e-6, 1e-12);
  EXPECT_NEAR(curve.at(Bytes{3000}).base(), 20e-6, 1e-12);
  EXPECT_NEAR(curve.at(Bytes{4}).base(), 10e-6, 1e-12);
  EXPECT_FALSE(curve.extrapolates(Bytes{9000}));
  EXPECT_TRUE(curve.extrapolates(Bytes{9001}));
}

TEST(Curve, GoesOnAtTheRateOfTheLastDoubling) {
  CollectiveFit fit;
  fit.samples = {sample(1000, 10), sample(4500, 45), sample(9000, 80)};
  // 35 us for the last 4500 bytes.
  EXPECT_NEAR(CollectiveCurve(fit).at(Bytes{13500}).base(), 115e-6, 1e-11);
  // The ring is faster: at its rate. A network of another speed is none of its business.
  const Seconds ring = microseconds(35) / 4500.0 * 0.81;
  EXPECT_NEAR(CollectiveCurve(fit, ring).at(Bytes{13500}).base(), 80e-6 + 35e-6 * 0.81, 1e-11);
  EXPECT_NEAR(CollectiveCurve(fit, ring * 0.1).at(Bytes{13500}).base(), 115e-6, 1e-11);
}

TEST(Curve, NoiseAtTheEndMakesNothingFree) {
  CollectiveFit fit;
  fit.samples = {sample(4500, 80), sample(9000, 80)};
  EXPECT_NEAR(CollectiveCurve(fit).at(Bytes{18000}).base(), 120e-6, 1e-11);  // half the mean rate at least
}

TEST(Curve, SegmentsEndAtTheLargestSizeThatWasMeasured) {
  CollectiveFit fit;
  fit.segments = {{std::nullopt, microseconds(50), ByteRate{100e9}}};
  EXPECT_FALSE(CollectiveCurve(fit).extrapolates(gibibytes(1)));
  fit.largest = Bytes{100'000'000};
  const CollectiveCurve curve(fit, Seconds{1 / 121e9});
  EXPECT_TRUE(curve.extrapolates(gibibytes(1)));
  EXPECT_NEAR(curve.at(Bytes{200'000'000}).base(), 1050e-6 + 1e8 / 121e9, 1e-9);
}

TEST(Curve, DipsAreSmoothed) {
  CollectiveFit fit;
  fit.samples = {sample(1000, 20), sample(2000, 5), sample(3000, 40)};
  const CollectiveCurve curve(fit);
  EXPECT_NEAR(curve.at(Bytes{1000}).base(), 10e-6, 1e-12);  // the geometric mean of 20 and 5
  EXPECT_NEAR(curve.at(Bytes{2000}).base(), 10e-6, 1e-12);
}

}  // namespace
}  // namespace shardsim
