// SPDX-License-Identifier: Apache-2.0
#include "calibrate/measure/nccl_rounds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/ranks/ranks.hpp"
#include "sim/base/problem.hpp"

namespace shardsim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// 10 us and 1 ns a byte, times the rank's slowness.
class FakeTimer final : public gpu::CollectiveTimer {
 public:
  explicit FakeTimer(double slowness) : slowness_(slowness) {}
  double seconds(int kind, long long bytes, int calls) override {
    calls_made.push_back({kind, bytes, calls});
    return slowness_ * (1e-5 + 1e-9 * static_cast<double>(bytes));
  }
  struct Call {
    int kind;
    long long bytes;
    int calls;
  };
  std::vector<Call> calls_made;

 private:
  double slowness_;
};

void quiet(double, const std::string&) {}

TEST(NcclRounds, SizesAreThePowersOfTwoFromOneKibibyteToOneGibibyte) {
  const auto sizes = NcclRounds().sizes();
  ASSERT_EQ(sizes.size(), 21u);
  EXPECT_EQ(sizes.front(), Bytes{1024});
  EXPECT_EQ(sizes.back(), Bytes{1LL << 30});
  EXPECT_EQ(calls_in_a_row(kibibytes(1)), 20);
  EXPECT_EQ(calls_in_a_row(mebibytes(1024)), 3);
}

TEST(NcclRounds, SharedSizesAreMultiplesOfTheRanks) {
  EXPECT_EQ(even_size(Collective::all_gather, Bytes{1024}, 3), Bytes{1020});
  EXPECT_EQ(even_size(Collective::reduce_scatter, Bytes{1024}, 8), Bytes{1024});
  EXPECT_EQ(even_size(Collective::all_reduce, Bytes{1024}, 3), Bytes{1024});
  EXPECT_EQ(even_size(Collective::all_gather, Bytes{1024}, 1024), Bytes{});
}

TEST(NcclRounds, Groups) {
  EXPECT_THAT(group_sizes("", 6), ElementsAre(6));
  EXPECT_THAT(group_sizes("4,2,4", 6), ElementsAre(2, 4));
  for (const char* wrong : {"1", "8", "2,x", "2,,4", "-2"}) EXPECT_THROW((void)group_sizes(wrong, 6), InputError) << wrong;
  EXPECT_EQ(nodes_of({"a", "a", "b", "b"}, 2), 1);
  EXPECT_EQ(nodes_of({"a", "a", "b", "b"}, 3), 2);
}

TEST(NcclRounds, WarmsUpOnceAndInterleavesSizes) {
  FakeTimer timer(1);
  CollectiveSamples samples;
  measure_rounds({kibibytes(1), kibibytes(2), 3}, {&timer, 4, 1, nullptr, "a test"}, {}, samples, quiet);
  ASSERT_EQ(timer.calls_made.size(), 4u * 2 * 4);  // rounds with the one to warm up, sizes, collectives
  EXPECT_EQ(timer.calls_made[0].bytes, 1024);
  EXPECT_EQ(timer.calls_made[4].bytes, 2048);
  EXPECT_EQ(timer.calls_made[8].bytes, 1024);
  const auto fits = samples.fits();
  ASSERT_EQ(fits.size(), 4u);
  for (const CollectiveFit& fit : fits) {
    EXPECT_EQ(fit.ranks, 4);
    EXPECT_EQ(fit.nodes, 1);
    EXPECT_THAT(fit.origin, HasSubstr("a test"));
    ASSERT_EQ(fit.samples.size(), 2u);
    EXPECT_EQ(fit.samples[0].repetitions, 3);
    EXPECT_NEAR(fit.samples[0].median.base(), 1e-5 + 1.024e-6, 1e-12);
  }
}

// An interrupted run has kept its measurements; the next one asks the timer only for the rest, and has the same samples in the end.
TEST(NcclRounds, GoesOnFromAnInterruptedRun) {
  const NcclRounds plan{kibibytes(1), kibibytes(2), 2};
  FakeTimer timer(1);
  std::vector<std::string> kept;
  NcclRecord record;
  record.keep = [&](const std::string& line) { kept.push_back(line); };
  CollectiveSamples whole, resumed;
  measure_rounds(plan, {&timer, 4, 1, nullptr, "a test"}, record, whole, quiet);
  ASSERT_EQ(kept.size(), 2u * 2 * 4);
  EXPECT_THAT(kept.front(), testing::StartsWith("collective all_reduce 4 1 1024 1 1.1024"));

  std::vector<std::string> cut(kept.begin(), kept.begin() + 10);
  cut.insert(cut.begin(), {"product 1 2 3 4e-6", "collective", "collective all_reduce 4 1 1024 2 soon"});
  record.earlier = measurements_in(cut);
  EXPECT_EQ(record.earlier.size(), 10u);
  kept.clear();
  timer.calls_made.clear();
  measure_rounds(plan, {&timer, 4, 1, nullptr, "a test"}, record, resumed, quiet);
  EXPECT_EQ(kept.size(), 6u);
  EXPECT_EQ(timer.calls_made.size(), 8u + 6u);  // with those that warm up
  ASSERT_EQ(resumed.fits().size(), whole.fits().size());
  for (std::size_t i = 0; i < whole.fits().size(); ++i)
    for (std::size_t s = 0; s < whole.fits()[i].samples.size(); ++s) {
      EXPECT_EQ(resumed.fits()[i].samples[s].repetitions, 2);
      EXPECT_EQ(resumed.fits()[i].samples[s].median, whole.fits()[i].samples[s].median);
    }
}

// A group of two among three ranks: the third has no timer and follows; the slower of the two counts.
TEST(NcclRounds, TheSlowestRankCounts) {
  const auto results = execute::run_ranks(3, [](int rank, execute::Line& line) {
    FakeTimer timer(rank == 1 ? 3 : 1);
    CollectiveSamples samples;
    measure_rounds({kibibytes(1), kibibytes(1), 2}, {rank < 2 ? &timer : nullptr, 2, 2, &line, "a test"}, {}, samples, quiet);
    const CollectiveFit fit = samples.fits().front();
    return std::to_string(static_cast<int>(fit.samples.front().median.base() * 1e9 + 0.5)) + " of " + std::to_string(fit.nodes);
  });
  EXPECT_THAT(results, testing::Each("33072 of 2"));  // 3 (10 us + 1.024 us)
}

}  // namespace
}  // namespace shardsim
