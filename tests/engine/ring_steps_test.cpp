// SPDX-License-Identifier: Apache-2.0
#include "sim/costs/collectives/ring_steps.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace shardsim {
namespace {

TEST(RingLoops, FullLoopsThenOneWithTheRest) {
  // Two ranks, one channel: 4 MiB a loop. 9 MiB + 10 bytes: two full loops, then chunks of 512 KiB + 5 bytes, rounded up to 16.
  const auto loops = ring_loops(mebibytes(9) + Bytes{10}, 2, 1);
  ASSERT_EQ(loops.size(), 2u);
  EXPECT_EQ(loops[0].count, 2);
  EXPECT_EQ(loops[0].chunk, 2 << 20);
  EXPECT_EQ(loops[0].slice, 1 << 20);
  EXPECT_EQ(loops[1].chunk, (512 << 10) + 16);
}

TEST(RingLoops, SmallChunksAreOneSliceOrTwoUnequalOnes) {
  EXPECT_EQ(ring_loops(kibibytes(40), 2, 1)[0].slice, 20 << 10);
  EXPECT_EQ(ring_loops(kibibytes(100), 2, 1)[0].slice, 32 << 10);  // chunk 50 KiB: 32 + 18
  EXPECT_EQ(ring_loops(kibibytes(200), 2, 1)[0].slice, 50 << 10);
}

TEST(StepwiseRing, LimitsAreTheBandwidthAndTheLatencyTerm) {
  // alpha = 0: k / N * S / B exactly.
  EXPECT_NEAR(stepwise_ring(Collective::all_reduce, mebibytes(64), 8, {4, ByteRate{100e9}, {}, {}}).base(), 1.75 * 67108864 / 100e9, 1e-12);
  // 16 bytes a rank: k alpha and next to nothing else.
  EXPECT_NEAR(stepwise_ring(Collective::all_gather, Bytes{128}, 8, {1, ByteRate{1e15}, microseconds(3), microseconds(5)}).base(), 26e-6,
              1e-12);
}

struct Case {
  Collective collective;
  std::int64_t n, bytes, channels;
  double alpha_us;
};

class StepwiseAgainstExplicit : public ::testing::TestWithParam<Case> {};

TEST_P(StepwiseAgainstExplicit, AgreeToABillionth) {
  const auto [collective, n, bytes, channels, alpha] = GetParam();
  const RingChannels ring{channels, ByteRate{25e9}, microseconds(alpha), microseconds(4)};
  const Seconds closed = stepwise_ring(collective, Bytes{bytes}, n, ring);
  const Seconds simulated =
      explicit_ring(collective, Bytes{bytes}, std::vector<ByteRate>(static_cast<std::size_t>(n), ring.bandwidth), ring);
  EXPECT_NEAR(simulated / closed, 1, 1e-9);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const std::int64_t mib = 1 << 20;
  for (const Collective c : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce})
    for (const std::int64_t n : {2, 3, 8})
      for (const std::int64_t per_rank :
           {std::int64_t{1000}, std::int64_t{20} << 10, std::int64_t{48} << 10, mib, 2 * mib, 6 * mib + 12345, 7 * mib})
        for (const double alpha : {0., 3., 500.}) {
          all.push_back({c, n, per_rank * n, 1, alpha});
          all.push_back({c, n, per_rank * n * 2 + 7, 2, alpha});
        }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cases, StepwiseAgainstExplicit, ::testing::ValuesIn(cases()));

TEST(ExplicitRing, TheSlowestLinkGovernsALongTransfer) {
  const RingChannels ring{1, ByteRate{50e9}, microseconds(1), {}};
  std::vector<ByteRate> links(4, ByteRate{50e9});
  links[2] = ByteRate{10e9};
  const Seconds slow = explicit_ring(Collective::all_gather, gibibytes(1), links, ring);
  const Seconds all_slow = stepwise_ring(Collective::all_gather, gibibytes(1), 4, {1, ByteRate{10e9}, microseconds(1), {}});
  EXPECT_LE(slow, all_slow);
  EXPECT_GT(slow / all_slow, 0.6);
}

TEST(ExplicitRing, LargeRingsAreQuick) {
  // 1 GiB on 1,024 ranks: 4 million slices. The bound is generous for shared machines; the benchmark records the time.
  const RingChannels ring{1, ByteRate{50e9}, microseconds(1), {}};
  const auto begin = std::chrono::steady_clock::now();
  const Seconds time = explicit_ring(Collective::all_reduce, gibibytes(1), std::vector<ByteRate>(1024, ring.bandwidth), ring);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_NEAR(time / stepwise_ring(Collective::all_reduce, gibibytes(1), 1024, ring), 1, 1e-9);
  EXPECT_LT(seconds, 2.0);
  std::printf("explicit ring, 1,024 ranks: %.3f s\n", seconds);
}

}  // namespace
}  // namespace shardsim
